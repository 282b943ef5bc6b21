"""How long parties wait for each other: what one says how often, and when another one gives it up.

A duration stands here if two modules or processes depend on it. What follows from another one is
derived from it, and what must hold between two of them is asserted when this module is imported.
What one module alone decides stands there, and what an operator sets stands in its configuration.
"""

from __future__ import annotations

from typing import Final

# --- connections ----------------------------------------------------------------------------------

HEARTBEAT_MS: Final = 500
HEARTBEAT_TIMEOUT_MS: Final = 4 * HEARTBEAT_MS
CONNECT_MS: Final = 1_000
"""A machine that takes no connection within this is gone, or cut off: the system of one that is
merely busy does so at once. Left alone, the system would ask again less and less often, and find it
as long after it came back as it was away."""

# --- a monitor and the clients of its queue -------------------------------------------------------

VERSION_SECONDS: Final = 1.0
"""A monitor tells its clients that it is there, and publishes what the queue carries."""
MONITOR_SILENT_SECONDS: Final = 3 * VERSION_SECONDS
"""A client gives up a monitor that has been silent for so long."""
CLIENT_ALIVE_SECONDS: Final = 2.0
"""A client tells its monitor that it is there, and a subscriber what it has read."""
CLIENT_FORGOTTEN_SECONDS: Final = 5 * CLIENT_ALIVE_SECONDS
"""A monitor forgets a client that has been silent for so long."""
CLIENT_ASKS_SECONDS: Final = 3.0
"""A client waits so long for an answer."""
MONITOR_ANSWERS_SECONDS: Final = 2.5
"""A monitor that has nothing to offer says so after this; the client hears why, and asks again."""
PUBLISHERS_RETURN_SECONDS: Final = 5.0
"""After another monitor, publishers have so long to say where they are before one is moved."""

STATISTICS_SILENT_SECONDS: Final = 3 * VERSION_SECONDS
"""Who follows a queue looks for its monitor again after so long without a document."""
CLIENTS_TOLD_SECONDS: Final = CLIENT_ALIVE_SECONDS + 0.5
"""Who has followed a queue for so long has heard of all its subscribers."""

assert MONITOR_ANSWERS_SECONDS < CLIENT_ASKS_SECONDS
assert MONITOR_SILENT_SECONDS < PUBLISHERS_RETURN_SECONDS
assert PUBLISHERS_RETURN_SECONDS < CLIENT_FORGOTTEN_SECONDS

# --- a monitor and the exchanges of its queue -----------------------------------------------------

EXCHANGE_HEARD_SECONDS: Final = 2.0
"""A report that is not older is a proof that its exchange lives; reports come each KPI period."""
EXCHANGE_LOST_SECONDS: Final = 3.0
"""An exchange that has not reported for so long is lost."""
MONITOR_UNHEARD_SECONDS: Final = 2.0
"""An exchange looks for its monitor after so long without a word. Counted in reports, so that a
process that was stopped for a while does not conclude it."""
TAKEOVER_SECONDS: Final = MONITOR_ANSWERS_SECONDS
"""Exchanges learn of a new monitor and report within this; clients do not wait longer."""
TAKEOVER_MOST_SECONDS: Final = 6.0
"""Exchanges that the queue has by its record, and that have not reported by then, do not serve."""
IDLE_AFTER_SECONDS: Final = 10.0
"""An exchange to which nobody has come for so long is idle, and says so in its reports."""
IDLE_FACTOR: Final = 2
"""An idle exchange reports to its monitor so many times less often, and may be silent for so many
times longer. As soon as somebody comes it reports at once, and then as usual."""
SAME_GROUPS_SECONDS: Final = IDLE_FACTOR * EXCHANGE_LOST_SECONDS
"""What a monitor has said of the groups of all exchanges holds for so long."""
EXCHANGE_OPENING_SECONDS: Final = 1.0
"""Subscribers have so long to find a new exchange before publishers are moved there."""

assert EXCHANGE_HEARD_SECONDS < EXCHANGE_LOST_SECONDS
assert MONITOR_UNHEARD_SECONDS < TAKEOVER_SECONDS < TAKEOVER_MOST_SECONDS

# --- publishers and exchanges ---------------------------------------------------------------------

ACK_SILENCE_SECONDS: Final = 0.5
"""A link without an ack for so long gets one, which shows whether it is still there: a publisher
that was killed is to be forgotten within two seconds."""
ACK_PROBE_SECONDS: Final = 1.0
"""Each link has its turn once in so long."""
ACK_SECONDS: Final = 3.0
"""A publisher gives up an exchange that owes it an acknowledgement for so long."""
RESET_REPEAT_SECONDS: Final = 1.0
"""An exchange repeats the same RESET to a publisher that sends on."""
RESET_SECONDS: Final = RESET_REPEAT_SECONDS
"""A publisher takes no notice of the same RESET within this after the last one."""
RESET_ASK_SECONDS: Final = 1.25
"""An exchange asks again for batches that it had no room for."""
EXCHANGE_UNKNOWN_SECONDS: Final = EXCHANGE_LOST_SECONDS
"""A new monitor may not know an exchange yet. After so long it will not: subscribers do not read
there, whatever the exchange acknowledges."""
REPLAY_LEFT_SECONDS: Final = 8.0
"""As the next one, for an exchange that was left; counted back from when the monitor has told last
that it serves. It may be gone for five seconds by then."""
REPLAY_KEEP_SECONDS: Final = 6.0
"""A publisher keeps what was acknowledged. The last three seconds of an exchange are promised, and
two and a half may pass until a host is noticed that has gone without a word."""

assert ACK_SILENCE_SECONDS < ACK_PROBE_SECONDS < ACK_SECONDS
assert RESET_SECONDS < RESET_ASK_SECONDS < ACK_SECONDS
assert EXCHANGE_LOST_SECONDS < REPLAY_KEEP_SECONDS < REPLAY_LEFT_SECONDS
assert 3.0 + (HEARTBEAT_MS + HEARTBEAT_TIMEOUT_MS) / 1_000 < REPLAY_KEEP_SECONDS

# --- subscribers and exchanges --------------------------------------------------------------------

END_SECONDS: Final = 0.5
"""An exchange publishes the end of its log, and looks after its links at the same time."""
END_SILENT_SECONDS: Final = 1.2
"""A fan-out that says nothing for so long is broken or slow."""
FETCH_GIVE_UP_SECONDS: Final = 10.0
"""An exchange gives up what it sends to a reader that takes nothing: an answer, or the connection
of its fan-out."""
FETCH_PATIENCE_SECONDS: Final = 20.0
"""A fetch that has brought nothing for so long is given up. A large batch is on its way for long,
and one that is asked for twice is sent twice."""
END_LATE_SECONDS: Final = END_SECONDS + 0.1
"""A fan-out that says nothing for so long after another connection to its exchange has ended has
ended, too."""
LIVE_LOST_SECONDS: Final = 3.0
"""A fan-out that is read and says nothing for so long, though the exchange answers questions, has
lost its connection."""
ANSWERING_SECONDS: Final = 2 * END_SECONDS * 0.9
"""It answers if it has done so for so long since the fan-out was missed: it has had time to publish
an END. Looks come once a second, and now and then a little early."""
LIVE_SILENT_SECONDS: Final = 12.0
"""A fan-out that is read and says nothing for so long has lost its connection, whatever else is
heard: an exchange that works hard is given ten seconds and must not be called by everybody
meanwhile."""
POSITION_ALIVE_SECONDS: Final = 1.0
"""Between two reports of a subscriber that does not read on, though there is something to read."""
READER_GONE_SECONDS: Final = 3 * POSITION_ALIVE_SECONDS
"""A subscriber that has something to read and does not say so for so long is not there."""
REPLAY_SECONDS: Final = ACK_SECONDS
"""Publishers learn that an exchange is gone, and send again, within this."""
LOSS_SECONDS: Final = 5.0
"""A hole waits no longer than this for exchanges that do not answer."""
STRIPED_LOSS_SECONDS: Final = 10.0
"""A hole in a striped stream waits no longer than this for a FLOOR above it; nor does any hole for
replays."""
AWAY_SECONDS: Final = 300.0
"""Of a durable queue a hole waits so long for exchanges that do not answer, unless the subscriber
was told another time: their logs come back with them."""

assert STRIPED_LOSS_SECONDS < AWAY_SECONDS
assert 2 * END_SECONDS < END_SILENT_SECONDS
assert END_SECONDS < END_LATE_SECONDS < END_SILENT_SECONDS
assert END_SECONDS < ANSWERING_SECONDS
assert END_SILENT_SECONDS + ANSWERING_SECONDS < LIVE_LOST_SECONDS
assert LIVE_LOST_SECONDS < FETCH_GIVE_UP_SECONDS < LIVE_SILENT_SECONDS
assert FETCH_GIVE_UP_SECONDS < FETCH_PATIENCE_SECONDS
assert REPLAY_SECONDS < LOSS_SECONDS < STRIPED_LOSS_SECONDS
assert REPLAY_LEFT_SECONDS < STRIPED_LOSS_SECONDS

# --- transactions ---------------------------------------------------------------------------------

PRODUCER_ALIVE_SECONDS: Final = 30.0
"""A producer tells each exchange that it may be asked there."""
PRODUCER_SILENT_SECONDS: Final = 100.0
"""An exchange does not ask a producer that it has not heard for so long."""

assert 3 * PRODUCER_ALIVE_SECONDS < PRODUCER_SILENT_SECONDS

# --- a host manager and its processes -------------------------------------------------------------

CHILD_REPORT_SECONDS: Final = 0.5
"""A process tells its host manager that it is there."""
IDLE_CHILD_FACTOR: Final = 4
"""Likewise to its host manager; both reports leave together then."""
HUNG_SECONDS_MIN: Final = 2 * CHILD_REPORT_SECONDS
"""The least that `children.hung_seconds` may be."""
CHILD_LIVES_SECONDS: Final = 2 * CHILD_REPORT_SECONDS
"""A process that has said something within this serves those that it has."""
CHILD_START_SECONDS: Final = 10.0
"""Unless `children.start_seconds` says otherwise: a process reports first within this."""
CHILD_START_STRETCH: Final = 6.0
"""On a host that gets too little processor it has so many times as long."""
CHILD_STOP_SECONDS: Final = 5.0
"""Unless `children.stop_seconds` says otherwise: between SIGTERM and SIGKILL."""
CHILD_KILLED_SECONDS: Final = 3.0
"""The system takes a killed process away within this."""
EXCHANGE_WRITES_SECONDS: Final = 3.0
"""An exchange that is to end has so long to write its log. What is not on the disk by then stays
unacknowledged: publishers have it still."""
CHILD_STOP_SECONDS_MIN: Final = EXCHANGE_WRITES_SECONDS + 1.0
"""The least that `children.stop_seconds` may be: one that is killed earlier has not written its
log, or not said so."""

assert CHILD_STOP_SECONDS_MIN <= CHILD_STOP_SECONDS

# --- configuration managers, host managers and monitors -------------------------------------------

HOST_REPORT_SECONDS: Final = 1.0
"""A host manager tells the leading configuration manager how it is."""
HOST_SILENT_SECONDS: Final = 3 * HOST_REPORT_SECONDS
"""A host that has not reported for so long is silent."""
LEADERLESS_SECONDS: Final = 3 * HOST_REPORT_SECONDS
"""No leader has said for so long that it drains this host: nothing here goes elsewhere."""
REPAIR_CONFIRM_SECONDS: Final = 1.2
"""A live host must leave a process out of its reports for so long: one may be under way."""
RULES_SECONDS: Final = 1.0
"""A monitor asks for its rules. By that the manager also knows that the monitor lives."""
PROOF_SECONDS: Final = 3 * RULES_SECONDS
"""A sign of life that a monitor has given is one for so long."""
ORPHAN_FORGOTTEN_SECONDS: Final = 3 * RULES_SECONDS
"""What the manager has not said for so long of an exchange that nobody wants holds no more."""

SESSION_SECONDS: Final = 6.0
"""Unless it is configured: the registry takes a process that was not heard for so long for gone."""
START_ASKS_SECONDS: Final = 15.0
"""A configuration manager waits so long for a process that a host manager starts,"""
START_STARVED_ASKS_SECONDS: Final = 65.0
"""and so long on a host that gets too little processor."""
STOP_ASKS_SECONDS: Final = 10.0
"""Likewise for what a host manager stops."""

assert HOST_REPORT_SECONDS < REPAIR_CONFIRM_SECONDS < HOST_SILENT_SECONDS < SESSION_SECONDS
assert CHILD_START_SECONDS + CHILD_KILLED_SECONDS < START_ASKS_SECONDS
assert CHILD_START_STRETCH * CHILD_START_SECONDS + CHILD_KILLED_SECONDS < START_STARVED_ASKS_SECONDS
assert CHILD_STOP_SECONDS + CHILD_KILLED_SECONDS < STOP_ASKS_SECONDS

# --- requests that wait for others ----------------------------------------------------------------

EMPTYING_ANSWER_SECONDS: Final = 12.0
"""A monitor says after so long what an exchange that is to be emptied still waits for."""
EMPTYING_ASKS_SECONDS: Final = 15.0
"""A configuration manager waits so long for that."""
PROVISION_ANSWER_SECONDS: Final = 50.0
"""A request that needs a new host is answered within this."""
SCALE_ASKS_SECONDS: Final = 60.0
"""A monitor waits so long for an exchange that it has asked for."""
ADMISSION_SECONDS: Final = 20.0
"""A request whose turn at its host has not come within this is refused."""
OPERATION_WAIT_SECONDS: Final = 25.0
"""For everything that a request waits for before it is begun."""
OPERATION_COMMIT_SECONDS: Final = 5.0
"""For the registry to take what has been done; the client is told why it does not."""
COMMAND_SECONDS: Final = 30.0
"""A client waits so long: creating and stopping wait for processes to start and end."""

assert EMPTYING_ANSWER_SECONDS < EMPTYING_ASKS_SECONDS
assert PROVISION_ANSWER_SECONDS < SCALE_ASKS_SECONDS
assert ADMISSION_SECONDS < OPERATION_WAIT_SECONDS < COMMAND_SECONDS
assert 2 * OPERATION_COMMIT_SECONDS <= COMMAND_SECONDS
