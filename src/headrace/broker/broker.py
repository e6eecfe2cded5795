"""The broker: the handlers' shared services. It holds no data of its own; all of that is in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from headrace.broker.background import Background
from headrace.broker.configs.broker import BrokerConfigs
from headrace.broker.fetching.sessions import FetchSessions
from headrace.broker.groups.coordinator import Coordinator
from headrace.broker.metrics.rounds import Rounds
from headrace.broker.network.watchdog import Watchdog
from headrace.broker.options import BrokerOptions
from headrace.broker.quotas.quotas import Quotas
from headrace.broker.rights.authorizer import Authorizer
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.broker.transactions.joining import Joining
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import ProducerIds
from headrace.store.store import Store
from headrace.store.topic_configs.policy import TopicPolicy


class Broker:
    """One node."""

    def __init__(self, store: Store, options: BrokerOptions, groups: GroupSettings) -> None:
        self.store = store
        self.options = options
        """As they are now: some change while the broker runs. Read with every request."""
        self.configs = BrokerConfigs(options, groups, store.default.configs, store.nodes.me.id)
        self.coordinator = Coordinator(store, groups, options.offsets_retention_check_ms)
        self.authorizer = Authorizer(store, options, is_on=options.authorizer == "on")
        self.quotas = Quotas(store, store.clock.steady_ms)
        self.fetch_sessions = FetchSessions(options.fetch_sessions_max)
        self.producer_ids = ProducerIds()
        self.transactions = TransactionCoordinator(store, self.producer_ids)
        self.joining = Joining(store)
        self.watchdog = Watchdog()
        self.metric_rounds = Rounds(self)
        self.cache_hits = self.cache_misses = 0
        """Reads of a partition that memory served, and those that went to Redis."""
        self._background = Background(self)
        self._follow_configs()

    def _follow_configs(self) -> None:
        self.configs.apply()
        self.options = self.configs.options
        self.store.policies.set_defaults(self.configs.topic_defaults)

    def start(self) -> None:
        """Begins the background work."""
        self.watchdog.start()
        self.store.default.configs.on_change = self._follow_configs
        self._follow_configs()
        self.coordinator.start()
        self.transactions.start()
        self._background.start()

    def stop(self) -> None:
        """Ends the background work."""
        self.watchdog.stop()
        self.metric_rounds.stop()
        self.coordinator.stop()
        self.transactions.stop()
        self._background.stop()

    def let_go_what_moved(self) -> None:
        """Gives up the groups and transactional ids that other nodes own by now."""
        self.coordinator.let_go()
        self.transactions.let_go()

    async def leave_lost(self, patience_s: float) -> None:
        """Writes back groups and transactional ids that the store may have lost, before the node stops."""
        await asyncio.gather(self.coordinator.leave_lost(patience_s), self.transactions.leave_lost(patience_s))

    def policy(self, topic: Topic) -> TopicPolicy:
        """The policy from a topic's configs and the broker's defaults."""
        return self.store.policies.of(topic)

    def led(self, topic: Topic) -> Iterator[int]:
        """The partitions of a topic that this node leads, each checked when its turn comes."""
        return (number for number in range(topic.partitions) if self.store.nodes.leads(topic, number))
