package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// oldVersions keeps a client to version 1 of transactions: one epoch for many, partitions added by a request.
func oldVersions() kgo.Opt { return kgo.MaxVersions(kversion.V3_5_0()) }

// transactions commits and aborts in turn, and reads back what is committed and what is there.
func transactions(ctx context.Context, topic string, epoch int16, options ...kgo.Opt) error {
	if err := createTopic(ctx, topic, 3); err != nil {
		return err
	}
	producer := client(append(options, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))...)
	defer producer.Close()
	for number := range 10 {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		for range 6 {
			record := &kgo.Record{Value: fmt.Append(nil, number)}
			if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(number%2 == 0)); err != nil {
			return err
		}
	}
	_, reached, errEpoch := producer.ProducerID(ctx)
	committed, errCommitted := valuesIn(ctx, topic, kgo.ReadCommitted(), 30)
	all, errAll := valuesIn(ctx, topic, kgo.ReadUncommitted(), 60)
	if err := first(errEpoch, errCommitted, errAll, expect("epoch", reached, epoch)); err != nil {
		return err
	}
	for number := range 10 {
		kept := 6 * (1 - number%2)
		err := first(
			expect("committed", committed[fmt.Sprint(number)], kept), expect("written", all[fmt.Sprint(number)], 6),
		)
		if err != nil {
			return fmt.Errorf("transaction %d: %w", number, err)
		}
	}
	return nil
}

// valuesIn counts the values of a topic up to its end, so that a record too many shows.
func valuesIn(ctx context.Context, topic string, level kgo.IsolationLevel, wanted int) (map[string]int, error) {
	ends, err := endsOf(ctx, topic)
	if err != nil {
		return nil, err
	}
	consumer := client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	values, total := map[string]int{}, 0
	for len(ends) > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				values[string(record.Value)]++
				total++
			}
			if record.Offset+1 == ends[record.Partition] {
				delete(ends, record.Partition)
			}
		})
	}
	return values, expect("records", total, wanted)
}

// endsOf has the end of each partition that is not empty. The last record there is a marker, once all is ended.
func endsOf(ctx context.Context, topic string) (map[int32]int64, error) {
	cluster := admin()
	defer cluster.Close()
	for ctx.Err() == nil {
		stable, errStable := cluster.ListCommittedOffsets(ctx, topic)
		all, errAll := cluster.ListEndOffsets(ctx, topic)
		if err := first(errStable, errAll); err != nil {
			return nil, err
		}
		ends, settled := map[int32]int64{}, true
		for partition, end := range all[topic] {
			settled = settled && stable[topic][partition].Offset == end.Offset
			if end.Offset > 0 {
				ends[partition] = end.Offset
			}
		}
		if settled { // a commit is answered before its markers are written
			return ends, nil
		}
	}
	return nil, ctx.Err()
}

// session copies records with a group's offsets, every other time aborted first: each arrives exactly once.
func session(ctx context.Context, name string, options ...kgo.Opt) error {
	from, to := name+"-from", name+"-to"
	if err := first(fill(ctx, from, 2, 20), createTopic(ctx, to, 2)); err != nil {
		return err
	}
	moving, err := kgo.NewGroupTransactSession(append([]kgo.Opt{
		kgo.SeedBrokers(address), kgo.TransactionalID(name), kgo.DefaultProduceTopic(to),
		kgo.ConsumerGroup(name), kgo.ConsumeTopics(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
	}, options...)...)
	if err != nil {
		return err
	}
	defer moving.Close()
	for moved, rounds := 0, 1; moved < 40; rounds++ {
		fetches := moving.PollRecords(ctx, 7)
		if err := first(fetches.Err(), moving.Begin()); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { moving.Produce(ctx, &kgo.Record{Value: record.Value}, nil) })
		committed, err := moving.End(ctx, kgo.TransactionEndTry(rounds%2 == 0))
		if err != nil {
			return err
		}
		if committed {
			moved += fetches.NumRecords()
		}
	}
	values, err := valuesIn(ctx, to, kgo.ReadCommitted(), 40)
	if err != nil {
		return err
	}
	cluster := admin()
	defer cluster.Close()
	offsets, err := cluster.FetchOffsets(ctx, name)
	if err != nil {
		return err
	}
	for n := range 20 {
		if err := expect(fmt.Sprintf("copies of %d", n), values[fmt.Sprint(n)], 2); err != nil {
			return err
		}
	}
	return first(expect("offset 0", offsets[from][0].At, int64(20)), expect("offset 1", offsets[from][1].At, int64(20)))
}

// fenced: who takes a transactional id over ends what the one before left open. While it is open, tools see it.
func fenced(ctx context.Context) error {
	if err := createTopic(ctx, "fenced", 1); err != nil {
		return err
	}
	left := client(kgo.TransactionalID("fenced"), kgo.DefaultProduceTopic("fenced"))
	defer left.Close()
	sent := left.BeginTransaction()
	if err := first(sent, left.ProduceSync(ctx, kgo.StringRecord("left")).FirstErr()); err != nil {
		return err
	}
	cluster := admin()
	defer cluster.Close()
	listed, errListed := cluster.ListTransactions(ctx, nil, []string{"Ongoing"})
	described, errDescribed := cluster.DescribeTransactions(ctx, "fenced")
	var place kadm.TopicsSet
	place.Add("fenced", 0)
	producers, errProducers := cluster.DescribeProducers(ctx, place)
	if err := first(errListed, errDescribed, errProducers); err != nil {
		return err
	}
	_, open := listed["fenced"]
	seen := first(
		expect("listed", open, true),
		expect("state", described["fenced"].State, "Ongoing"),
		expect("in fenced-0", described["fenced"].Topics.Lookup("fenced", 0), true),
	)
	for _, one := range producers["fenced"].Partitions[0].ActiveProducers {
		seen = first(seen, expect("first offset", one.CurrentTxnStartOffset, int64(0)))
	}
	next := client(kgo.TransactionalID("fenced"), kgo.DefaultProduceTopic("fenced"))
	defer next.Close()
	begun := next.BeginTransaction()
	produced := next.ProduceSync(ctx, kgo.StringRecord("next")).FirstErr()
	if err := first(seen, begun, produced, next.EndTransaction(ctx, kgo.TryCommit)); err != nil {
		return err
	}
	late := left.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(late, kerr.ProducerFenced) && !errors.Is(late, kerr.InvalidProducerEpoch) {
		return fmt.Errorf("the late commit: %v", late)
	}
	values, err := valuesIn(ctx, "fenced", kgo.ReadCommitted(), 1)
	return first(err, expect("values", values, map[string]int{"next": 1}))
}

// notInStreams: readers of Redis would see what is not committed.
func notInStreams(ctx context.Context) error {
	cluster := admin()
	defer cluster.Close()
	format := "stream"
	configs := map[string]*string{"headrace.format": &format}
	if _, err := cluster.CreateTopic(ctx, 1, -1, configs, "shared-stream"); err != nil {
		return err
	}
	producer := client(kgo.TransactionalID("streams"), kgo.DefaultProduceTopic("shared-stream"))
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	err := producer.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr()
	if !errors.Is(err, kerr.UnsupportedForMessageFormat) {
		return fmt.Errorf("got %v", err)
	}
	return producer.EndTransaction(ctx, kgo.TryAbort)
}
