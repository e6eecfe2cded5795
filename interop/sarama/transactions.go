package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
)

// transactional has what Sarama requires of a transactional producer.
func transactional(id string) (sarama.SyncProducer, error) {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = id
	return sarama.NewSyncProducer([]string{address}, config)
}

// transactions: aborted records are there, and only who asks for them reads them.
func transactions(ctx context.Context) error {
	producer, err := transactional("t")
	if err != nil {
		return err
	}
	defer producer.Close()
	var sent, committed []string
	for number := range 5 {
		end, name := producer.CommitTxn, "kept"
		if number%2 == 1 {
			end, name = producer.AbortTxn, "dropped"
		}
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		for range 3 {
			value := fmt.Sprint(name, " ", len(sent))
			sent = append(sent, value)
			if name == "kept" {
				committed = append(committed, value)
			}
			message := &sarama.ProducerMessage{Topic: "transactions", Value: sarama.StringEncoder(value)}
			if _, _, err := producer.SendMessage(message); err != nil {
				return err
			}
		}
		if err := end(); err != nil {
			return err
		}
	}
	careful, errCareful := valuesUpTo(ctx, sarama.ReadCommitted, sent[len(sent)-1])
	careless, errCareless := valuesUpTo(ctx, sarama.ReadUncommitted, sent[len(sent)-1])
	return first(
		errCareful, errCareless, expect("committed", careful, committed), expect("written", careless, sent),
	)
}

func valuesUpTo(ctx context.Context, level sarama.IsolationLevel, last string) ([]string, error) {
	config := settings()
	config.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer([]string{address}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition("transactions", 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var values []string
	for len(values) == 0 || values[len(values)-1] != last {
		select {
		case got := <-partition.Messages():
			values = append(values, string(got.Value))
		case <-ctx.Done():
			return nil, fmt.Errorf("after %s: %w", strings.Join(values, ", "), ctx.Err())
		}
	}
	return values, nil
}

// transactionalOffsets are the group's once the transaction is committed, and never if it is aborted.
func transactionalOffsets(ctx context.Context) error {
	admin, err := sarama.NewClusterAdmin([]string{address}, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	producer, err := transactional("offsets")
	if err != nil {
		return err
	}
	defer producer.Close()
	committed := func(group string) int64 {
		offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{"transactions": {0}})
		if err != nil {
			return -2
		}
		return offsets.GetBlock("transactions", 0).Offset
	}
	for _, each := range []struct {
		end    func() error
		group  string
		offset int64
	}{{producer.CommitTxn, "kept", 2}, {producer.AbortTxn, "dropped", 4}, {producer.CommitTxn, "kept", 3}} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		offset := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: each.offset}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{"transactions": {offset}}
		if err := first(producer.AddOffsetsToTxn(offsets, each.group), each.end()); err != nil {
			return err
		}
		if each.group == "dropped" {
			continue
		}
		// A transaction's end is answered before its offsets count.
		if err := until(ctx, "offset", func() bool { return committed(each.group) == each.offset }); err != nil {
			return err
		}
	}
	// The abort is done with, since a later transaction is.
	return expect("aborted offset", committed("dropped"), int64(-1))
}

// notInStreams: readers of Redis would see what is not committed.
func notInStreams(context.Context) error {
	admin, err := sarama.NewClusterAdmin([]string{address}, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	format := "stream"
	detail := &sarama.TopicDetail{
		NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"headrace.format": &format},
	}
	if err := admin.CreateTopic("shared-stream", detail, false); err != nil {
		return err
	}
	producer, err := transactional("streams")
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "shared-stream", Value: sarama.StringEncoder("x")})
	if !errors.Is(err, sarama.ErrUnsupportedForMessageFormat) {
		return fmt.Errorf("got %v", err)
	}
	return nil
}
