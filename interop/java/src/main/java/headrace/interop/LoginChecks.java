package headrace.interop;

import static headrace.interop.Checks.expect;
import static headrace.interop.Checks.expectError;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Each way to log in over TLS, with the right secret and with a wrong or expired one; and what rights do. */
final class LoginChecks {
    private static final String PACKAGE = "org.apache.kafka.common.security.";
    private static final String PASSWORD = System.getenv("LOGIN_PASSWORD");

    void run(Checks checks) {
        for (var mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            checks.check("login over TLS (" + mechanism + "), and a wrong password", () -> password(mechanism));
        }
        checks.check("login over TLS (OAUTHBEARER), and an expired token", this::token);
        checks.check("login by certificate, and none or an expired one", this::certificate);
        checks.check("a user without rights, and with one", this::rights);
    }

    private void password(String mechanism) throws Exception {
        expect("nodes", nodes(withPassword(mechanism, PASSWORD)), 1);
        expectError(SaslAuthenticationException.class, () -> nodes(withPassword(mechanism, "wrong")));
    }

    private void token() throws Exception {
        expect("nodes", nodes(withToken(System.getenv("LOGIN_TOKEN"))), 1);
        expectError(
                SaslAuthenticationException.class, () -> nodes(withToken(System.getenv("LOGIN_EXPIRED_TOKEN"))));
    }

    private void certificate() throws Exception {
        expect("nodes", nodes(withCertificate(System.getenv("LOGIN_CERTIFICATE"))), 1);
        expectError(
                SslAuthenticationException.class,
                () -> nodes(withCertificate(System.getenv("LOGIN_EXPIRED_CERTIFICATE"))));
        expectError(SslAuthenticationException.class, () -> nodes(withCertificate(null)));
    }

    /** The owner of the certificate begins with nothing: it cannot even see the topic. */
    private void rights() throws Exception {
        var owner = withCertificate(System.getenv("LOGIN_CERTIFICATE"));
        try (var root = Admin.create(withPassword("SCRAM-SHA-512", PASSWORD));
                var producer = new KafkaProducer<>(owner, new ByteArraySerializer(), new ByteArraySerializer())) {
            root.createTopics(List.of(new NewTopic("guarded", 1, (short) 1))).all().get();
            var record = new ProducerRecord<byte[], byte[]>("guarded", Clients.bytes("value"));
            expectError(TopicAuthorizationException.class, () -> producer.send(record).get());
            var write = new AccessControlEntry(
                    "User:" + System.getenv("LOGIN_CERTIFICATE_USER"), "*", AclOperation.WRITE, AclPermissionType.ALLOW);
            var topic = new ResourcePattern(ResourceType.TOPIC, "guarded", PatternType.LITERAL);
            root.createAcls(List.of(new AclBinding(topic, write))).all().get();
            expect("offset", producer.send(record).get().offset(), 0L);
        }
    }

    private static int nodes(Map<String, Object> settings) throws Exception {
        try (var admin = Admin.create(settings)) {
            return admin.describeCluster().nodes().get().size();
        }
    }

    private static Map<String, Object> withPassword(String mechanism, String password) {
        var module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        var login = " required username=\"" + System.getenv("LOGIN_USER") + "\" password=\"" + password + "\";";
        return sasl(mechanism, PACKAGE + module + login);
    }

    private static Map<String, Object> withToken(String token) {
        var login = PACKAGE + "oauthbearer.OAuthBearerLoginModule required token=\"" + token + "\";";
        var settings = sasl("OAUTHBEARER", login);
        settings.put("sasl.login.callback.handler.class", GivenToken.class.getName());
        return settings;
    }

    private static Map<String, Object> sasl(String mechanism, String login) {
        var settings = over("SASL_SSL", System.getenv("LOGIN_ADDRESS"));
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", login);
        return settings;
    }

    private static Map<String, Object> withCertificate(String file) {
        var settings = over("SSL", System.getenv("LOGIN_SSL_ADDRESS"));
        if (file != null) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", file);
        }
        return settings;
    }

    private static Map<String, Object> over(String protocol, String address) {
        return new HashMap<>(Map.of(
                "bootstrap.servers", address,
                "security.protocol", protocol,
                "ssl.truststore.type", "PEM",
                "ssl.truststore.location", System.getenv("LOGIN_CA")));
    }
}
