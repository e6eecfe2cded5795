package headrace.interop;

import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Runs checks one after the other, each within a time limit, and prints a line for each. */
final class Checks {
    private static final int LIMIT_S = 60;

    private final ExecutorService threads = Executors.newCachedThreadPool(action -> {
        var thread = new Thread(action);
        thread.setDaemon(true);
        return thread;
    });
    private int failures;

    /** What a check does; it fails by throwing. */
    interface Action {
        void run() throws Exception;
    }

    void check(String name, Action action) {
        var done = threads.submit(() -> {
            action.run();
            return null;
        });
        try {
            done.get(LIMIT_S, TimeUnit.SECONDS);
            System.out.println("ok " + name);
        } catch (Exception failure) {
            failures++;
            done.cancel(true);
            var cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            cause.printStackTrace();
            System.out.println("FAILED " + name + ": " + cause.toString().replaceAll("\\s+", " "));
        }
    }

    int failures() {
        return failures;
    }

    static void expect(String what, Object actual, Object expected) {
        if (!Objects.deepEquals(actual, expected)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    /** The error of the given kind that an action must end with, unwrapped. */
    static <E extends Throwable> E expectError(Class<E> kind, Action action) {
        try {
            action.run();
        } catch (Throwable thrown) {
            for (var error = thrown; error != null; error = error.getCause()) {
                if (kind.isInstance(error)) {
                    return kind.cast(error);
                }
            }
            throw new AssertionError("expected " + kind.getSimpleName() + ", got " + thrown, thrown);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", but nothing was thrown");
    }
}
