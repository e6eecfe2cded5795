"""What Spark needs of this machine."""

from headrace.lake.session import NoJava, check_java


def test_there_is_a_java_that_spark_runs_on() -> None:
    try:
        check_java()
    except NoJava as error:
        raise AssertionError(f"The tests that need Spark did not run: {error}.") from None
