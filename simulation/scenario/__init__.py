"""What a scenario is: phases of load, faults and expectations, as plain checked data.

    scenario   the whole, as written in simulation/scenarios/*.yaml
    rates      how many messages a publisher sends, second by second
    draws      sizes and topics, drawn from distributions
    reading    from a file to a Scenario; errors name file, line and key
    offered    what is to be sent, from moment to moment
    settings   limits and rules of the queue
    legacy     the old JSON description of a load test

Live runs and the model take the same scenarios. Nothing here looks at a clock or opens a socket.
"""
