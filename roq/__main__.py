"""`python -m roq` is `roq`."""

from roq.cli.main import main

if __name__ == "__main__":
    main()
