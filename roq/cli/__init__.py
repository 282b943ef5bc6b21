"""The command line, the only place that prints or ends the process.

main.py is where it begins, commands.py finds the commands, one module per noun holds them;
client.py has what those share that talk to a cluster, output.py prints, failures.py turns errors
into sentences and exit codes.
"""
