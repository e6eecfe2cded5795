"""`python -m headrace` is the command, for environments whose scripts are not on the PATH."""

from headrace.cli.main import main

if __name__ == "__main__":
    main(prog_name="headrace")
