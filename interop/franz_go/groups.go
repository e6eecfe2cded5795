package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const pollTime = 100 * time.Millisecond

// member joins a group that starts at the beginning and commits only when told.
func member(topic string, options ...kgo.Opt) *kgo.Client {
	return client(append([]kgo.Opt{
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(300 * time.Millisecond),
	}, options...)...)
}

// collect polls for a moment and notes which records came.
func collect(ctx context.Context, consumer *kgo.Client, seen map[string]bool) {
	soon, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	consumer.PollFetches(soon).EachRecord(func(record *kgo.Record) {
		seen[fmt.Sprint(record.Partition, ":", record.Offset)] = true
	})
}

// partitionsOf counts what each member of a group has, as the broker tells it; nil unless the group is stable.
func partitionsOf(ctx context.Context, cluster *kadm.Client, group string) ([]int, error) {
	groups, err := cluster.DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	described := groups[group]
	if described.State != "Stable" {
		return nil, described.Err
	}
	var counts []int
	for _, one := range described.Members {
		assignment, _ := one.Assigned.AsConsumer()
		held := 0
		for _, topic := range assignment.Topics {
			held += len(topic.Partitions)
		}
		counts = append(counts, held)
	}
	return counts, nil
}

func twoMembers(ctx context.Context, topic string, balancer kgo.GroupBalancer) error {
	const partitions, each = 4, 50
	if err := fill(ctx, topic, partitions, each); err != nil {
		return err
	}
	cluster := admin()
	defer cluster.Close()
	one := member(topic, kgo.Balancers(balancer))
	defer one.Close()
	seen := map[string]bool{}
	other := map[string]bool{}
	var second *kgo.Client
	for step := 0; step < 3; {
		if ctx.Err() != nil {
			return fmt.Errorf("step %d: %w", step, ctx.Err())
		}
		collect(ctx, one, seen)
		if second != nil {
			collect(ctx, second, other)
		}
		counts, err := partitionsOf(ctx, cluster, topic)
		switch {
		case err != nil:
			return err
		case step == 0 && len(counts) == 1 && counts[0] == partitions:
			second = member(topic, kgo.Balancers(balancer))
			step++
		case step == 1 && len(counts) == 2 && counts[0] == 2 && counts[1] == 2 && len(other) > 0:
			second.Close()
			second = nil
			step++
		case step == 2 && len(counts) == 1 && counts[0] == partitions && len(seen) == partitions*each:
			step++
		}
	}
	return nil
}

func resumes(ctx context.Context) error {
	if err := fill(ctx, "resume", 1, 10); err != nil {
		return err
	}
	one := member("resume")
	if _, err := read(ctx, one, 10); err != nil {
		return err
	}
	half := &kgo.Record{Topic: "resume", Partition: 0, Offset: 3, LeaderEpoch: -1}
	if err := one.CommitRecords(ctx, half); err != nil {
		return err
	}
	one.Close()
	two := member("resume")
	defer two.Close()
	records, err := read(ctx, two, 1)
	if err != nil {
		return err
	}
	return expect("first offset after the restart", records[0].Offset, int64(4))
}

func describeGroups(ctx context.Context) error {
	cluster := admin()
	defer cluster.Close()
	listed, err := cluster.ListGroups(ctx)
	if err != nil {
		return err
	}
	lags, err := cluster.Lag(ctx, "resume")
	if err != nil {
		return err
	}
	deleted, err := cluster.DeleteGroup(ctx, "resume")
	return first(
		err, deleted.Err,
		expect("listed", listed["resume"].ProtocolType, "consumer"),
		expect("lag", lags["resume"].Lag.Total(), int64(6)),
	)
}
