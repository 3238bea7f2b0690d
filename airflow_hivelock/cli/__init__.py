"""The command line."""


def main(*, in_airflow: bool = False) -> int:
    """Run the console script ``hivelock``. Ctrl-C during its imports, about half a second, prints no traceback.

    :param in_airflow: run ``python -m airflow_hivelock.cli`` instead.
    :return: the exit code.
    """
    try:
        from airflow_hivelock.cli import command

        return command.main_in_airflow() if in_airflow else command.main()
    except KeyboardInterrupt:
        return 130
