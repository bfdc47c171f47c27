"""``python -m fairturn``: the command line, where no ``fairturn`` is on the PATH."""

from fairturn.cli import main

if __name__ == "__main__":
    main()
