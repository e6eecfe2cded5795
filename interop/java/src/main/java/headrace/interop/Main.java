package headrace.interop;

import java.io.IOException;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;

/** Kafka's own Java client against the broker whose address is the first argument. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws IOException {
        var address = arguments[0];
        var checks = new Checks();
        System.out.println("version " + version());
        new AdminChecks(address).run(checks);
        new ProduceChecks(address).run(checks);
        new GroupChecks(address).run(checks);
        new GroupAdminChecks(address).run(checks);
        new TransactionChecks(address).run(checks);
        new RefusalChecks(address).run(checks);
        new LoginChecks().run(checks);
        System.exit(checks.failures() == 0 ? 0 : 1);
    }

    private static String version() throws IOException {
        var properties = new Properties();
        try (var file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }
}
