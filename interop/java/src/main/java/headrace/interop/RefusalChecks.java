package headrace.interop;

import static headrace.interop.Checks.expect;
import static headrace.interop.Checks.expectError;

import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/** What the broker does not offer is rejected at once, with an error that says so. */
final class RefusalChecks {
    private static final long QUICKLY_MS = 5_000;

    private final Clients clients;

    RefusalChecks(String address) {
        this.clients = new Clients(address);
    }

    void run(Checks checks) {
        checks.check("group.protocol=consumer is rejected at once", () -> quickly(this::consumerProtocol));
        checks.check("share groups are rejected at once", () -> quickly(this::shareGroups));
    }

    private static void quickly(Checks.Action action) throws Exception {
        var start = System.nanoTime();
        action.run();
        var tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        if (tookMs > QUICKLY_MS) {
            throw new AssertionError("took " + tookMs + " ms");
        }
    }

    private void consumerProtocol() throws Exception {
        clients.createTopic("refused", 1);
        try (var consumer = clients.consumer("group.id", "refused", "group.protocol", "consumer")) {
            consumer.subscribe(List.of("refused"));
            var error = expectError(UnsupportedVersionException.class, () -> Clients.read(consumer, 1));
            expect("the error names the protocol", error.getMessage().toLowerCase(Locale.ROOT).contains("consumer"), true);
        }
    }

    private void shareGroups() throws Exception {
        try (var consumer = clients.shareConsumer("refused-share")) {
            consumer.subscribe(List.of("refused"));
            expectError(UnsupportedVersionException.class, () -> {
                while (!Thread.currentThread().isInterrupted()) {
                    consumer.poll(Clients.POLL);
                }
            });
        }
    }
}
