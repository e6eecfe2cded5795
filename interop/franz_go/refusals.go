package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fallsBack: a client that asks for balancing by the broker is told that there is none, and does it itself.
func fallsBack(ctx context.Context) error {
	if err := fill(ctx, "falls-back", 1, 3); err != nil {
		return err
	}
	consumer := member("falls-back", kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	defer consumer.Close()
	records, err := read(ctx, consumer, 3)
	return first(err, expect("records", len(records), 3))
}

func shareGroup(ctx context.Context) error {
	if err := createTopic(ctx, "queue", 1); err != nil {
		return err
	}
	consumer := client(kgo.ShareGroup("queue"), kgo.ConsumeTopics("queue"))
	defer consumer.Close()
	soon, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := consumer.PollFetches(soon).Err()
	if !errors.Is(err, kerr.UnsupportedVersion) {
		return fmt.Errorf("got %v", err)
	}
	return nil
}

// smallAdmin: what topicctl, consoles and exporters ask for beside the usual.
func smallAdmin(ctx context.Context) error {
	if err := fill(ctx, "small-admin", 2, 1); err != nil {
		return err
	}
	cluster := admin()
	defer cluster.Close()
	var all kadm.TopicsSet
	all.Add("small-admin", 0, 1)
	moving, errMoving := cluster.ListPartitionReassignments(ctx, all)
	producers, errProducers := cluster.DescribeProducers(ctx, all)
	elected, errElected := cluster.ElectLeaders(ctx, kadm.ElectPreferredReplica, all)
	quotas, errQuotas := cluster.DescribeClientQuotas(ctx, false, nil)
	users, errUsers := cluster.DescribeUserSCRAMs(ctx)
	everything := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts()
	acls, errACLs := cluster.DescribeACLs(ctx, everything.Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny))
	described, errDescribed := cluster.DescribeTransactions(ctx, "t")
	return first(
		errMoving, errProducers, errElected, errQuotas, errUsers, errACLs, errDescribed,
		expect("reassignments", len(moving), 0),
		expect("producers", len(producers["small-admin"].Partitions[0].ActiveProducers), 1),
		expect("election", errors.Is(elected["small-admin"][0].Err, kerr.ElectionNotNeeded), true),
		expect("quotas", len(quotas), 0),
		expect("users", len(users), 0),
		expect("ACLs", errors.Is(acls[0].Err, kerr.SecurityDisabled), true),
		expect("transaction", errors.Is(described["t"].Err, kerr.TransactionalIDNotFound), true),
	)
}

// versionGuess: tools show what kversion makes of the list of APIs.
func versionGuess(ctx context.Context) error {
	cluster := admin()
	defer cluster.Close()
	versions, err := cluster.ApiVersions(ctx)
	if err != nil {
		return err
	}
	for _, broker := range versions {
		guess := broker.VersionGuess()
		if !strings.HasPrefix(guess, "v4.") && !strings.HasPrefix(guess, "at least v4.") {
			return fmt.Errorf("taken for %s", guess)
		}
	}
	return expect("brokers", len(versions), 1)
}
