"""`python -m iosim` is `iosim`."""

from iosim.cli import main

if __name__ == "__main__":
    main(prog_name="iosim")
