package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
)

// transactionalOffsets: kafka-go produces no transactional records, but has the requests for a group's offsets. They
// are the group's once the transaction is committed, and never if it is aborted.
func transactionalOffsets(ctx context.Context) error {
	if err := createTopic(ctx, "transactions", 1); err != nil {
		return err
	}
	const id, topic = "t", "transactions"
	cluster := client()
	found, err := cluster.InitProducerID(ctx, &kafka.InitProducerIDRequest{
		TransactionalID: id, TransactionTimeoutMs: int((30 * time.Second).Milliseconds()), ProducerID: -1, ProducerEpoch: -1,
	})
	if err := first(err, found.Error); err != nil {
		return err
	}
	producer, epoch := found.Producer.ProducerID, found.Producer.ProducerEpoch
	committed := func(group string) int64 {
		asked := map[string][]int{topic: {0}}
		offsets, err := cluster.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: asked})
		if err != nil || len(offsets.Topics[topic]) != 1 {
			return -2
		}
		return offsets.Topics[topic][0].CommittedOffset
	}
	for _, each := range []struct {
		commits bool
		group   string
		offset  int64
	}{{true, "kept", 2}, {false, "dropped", 4}, {true, "kept", 3}} {
		added, errAdded := cluster.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
			TransactionalID: id, ProducerID: producer, ProducerEpoch: epoch, GroupID: each.group,
		})
		if err := errAdded; err != nil {
			return err
		}
		sent, errSent := cluster.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
			TransactionalID: id, ProducerID: producer, ProducerEpoch: epoch, GroupID: each.group, GenerationID: -1,
			Topics: map[string][]kafka.TxnOffsetCommit{topic: {{Partition: 0, Offset: each.offset}}},
		})
		if err := first(added.Error, errSent); err != nil {
			return err
		}
		ended, errEnded := cluster.EndTxn(ctx, &kafka.EndTxnRequest{
			TransactionalID: id, ProducerID: producer, ProducerEpoch: epoch, Committed: each.commits,
		})
		if err := first(sent.Topics[topic][0].Error, errEnded); err != nil {
			return err
		}
		if err := ended.Error; err != nil {
			return err
		}
		if !each.commits {
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
