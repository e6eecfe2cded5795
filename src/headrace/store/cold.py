"""The contract of a cold log by its former name."""

from headrace.cold_log import ColdAway as ColdAway
from headrace.cold_log import ColdLog as ColdLog
from headrace.cold_log import ColdPartition as ColdPartition
from headrace.cold_log import ColdRead as ColdRead
from headrace.cold_log import Held as Held
