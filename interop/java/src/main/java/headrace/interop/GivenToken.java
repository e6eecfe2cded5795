package headrace.interop;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Logs in with the token of its login line, whatever is in it: whether it is good is for the broker to say. */
public final class GivenToken implements AuthenticateCallbackHandler {
    private String token;

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> login) {
        token = login.get(0).getOptions().get("token").toString();
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (var callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback wanted) {
                wanted.token(new Token(token, System.currentTimeMillis()));
            } else if (!(callback instanceof SaslExtensionsCallback)) {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    @Override
    public void close() {
    }

    private record Token(String value, long nowMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return nowMs + TimeUnit.HOURS.toMillis(1);
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return nowMs;
        }
    }
}
