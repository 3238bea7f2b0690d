"""The command line."""


def main() -> int:
    """Run the console script ``hivelock``. Ctrl-C during its imports, about half a second, prints no traceback.

    :return: the exit code.
    """
    try:
        from airflow_hivelock.cli import command

        return command.main()
    except KeyboardInterrupt:
        return 130
