"""``python -m fairlead``: the command line, where no ``fairlead`` is on the PATH."""

from fairlead.cli import main

if __name__ == "__main__":
    main()
