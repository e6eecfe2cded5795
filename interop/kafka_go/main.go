// kafka-go against the broker whose address is the first argument.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

const count = 200

var address string

func main() {
	address = os.Args[1]
	fmt.Println("version", version())
	all := &checks{}
	all.check("topics, partitions, configs and cluster", administer)
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		name := codec.String()
		if codec == 0 {
			name = "none"
		}
		all.check("produce and read back ("+name+")", func(ctx context.Context) error {
			return roundTrip(ctx, "round-trip-"+name, codec)
		})
	}
	all.check("read by offset and time", seek)
	all.check("two members and their commits", twoMembers)
	all.check("offsets in a transaction", transactionalOffsets)
	if all.failures > 0 {
		os.Exit(1)
	}
}

func client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(address), Timeout: 10 * time.Second}
}

func createTopic(ctx context.Context, topic string, partitions int) error {
	wish := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	answer, err := client().CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wish}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func administer(ctx context.Context) error {
	if err := createTopic(ctx, "admin", 2); err != nil {
		return err
	}
	if again := createTopic(ctx, "admin", 2); !errors.Is(again, kafka.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", again)
	}
	more := kafka.TopicPartitionsConfig{Name: "admin", Count: 3}
	grown, err := client().CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{more},
	})
	if err := first(err, grown.Errors["admin"]); err != nil {
		return err
	}
	set := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: "admin",
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{
			{Name: "retention.ms", Value: "70000", ConfigOperation: kafka.ConfigOperationSet},
		},
	}
	altered, err := client().IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{set},
	})
	if err := first(err, altered.Resources[0].Error); err != nil {
		return err
	}
	wish := kafka.DescribeConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: "admin", ConfigNames: []string{"retention.ms"},
	}
	configs, err := client().DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{wish},
	})
	if err != nil {
		return err
	}
	connection, err := kafka.DialContext(ctx, "tcp", address) // the client would answer from its metadata of before
	if err != nil {
		return err
	}
	defer connection.Close()
	partitions, err := connection.ReadPartitions("admin")
	if err != nil {
		return err
	}
	brokers, err := connection.Brokers()
	if err != nil {
		return err
	}
	deleted, err := client().DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{"admin"}})
	return first(
		err, deleted.Errors["admin"],
		expect("retention.ms", configs.Resources[0].ConfigEntries[0].ConfigValue, "70000"),
		expect("partitions", len(partitions), 3),
		expect("brokers", len(brokers), 1),
	)
}

func writer(topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(address), Topic: topic, Balancer: &kafka.Hash{}, BatchTimeout: 10 * time.Millisecond,
		RequiredAcks: kafka.RequireAll, AllowAutoTopicCreation: true,
	}
}

func messages() []kafka.Message {
	var all []kafka.Message
	for n := range count {
		message := kafka.Message{
			Key: fmt.Append(nil, "key-", n), Time: time.UnixMilli(int64(1000 * (n + 1))),
			Headers: []kafka.Header{{Key: "h", Value: []byte("first")}},
		}
		if n%7 > 0 {
			message.Value = []byte(strings.Repeat("x", n))
		}
		all = append(all, message)
	}
	return all
}

func roundTrip(ctx context.Context, topic string, codec kafka.Compression) error {
	producer := writer(topic)
	defer producer.Close()
	producer.Compression = codec
	sent := messages()
	if err := first(createTopic(ctx, topic, 1), producer.WriteMessages(ctx, sent...)); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, Topic: topic, MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	for n, want := range sent {
		got, err := reader.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("after %d records: %w", n, err)
		}
		same := first(
			expect("offset", got.Offset, int64(n)),
			expect("key", string(got.Key), string(want.Key)),
			expect("value", string(got.Value), string(want.Value)),
			expect("value is null", got.Value == nil, want.Value == nil),
			expect("headers", got.Headers, want.Headers),
			expect("timestamp", got.Time.UnixMilli(), want.Time.UnixMilli()),
		)
		if same != nil {
			return same
		}
	}
	return nil
}

func seek(ctx context.Context) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, Topic: "round-trip-none"})
	defer reader.Close()
	if err := reader.SetOffsetAt(ctx, time.UnixMilli(3500)); err != nil {
		return err
	}
	byTime := reader.Offset()
	if err := reader.SetOffset(150); err != nil {
		return err
	}
	got, err := reader.ReadMessage(ctx)
	return first(err, expect("by time", byTime, int64(3)), expect("by offset", string(got.Key), "key-150"))
}

// member reads until its reader is closed and counts what it saw; reading commits.
func member(ctx context.Context, seen *atomic.Int64) *kafka.Reader {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, GroupID: "two", Topic: "two", HeartbeatInterval: 300 * time.Millisecond,
		MaxWait: 500 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	go func() {
		for {
			if _, err := reader.ReadMessage(ctx); err != nil {
				if !errors.Is(err, io.EOF) {
					fmt.Fprintln(os.Stderr, err)
				}
				return
			}
			seen.Add(1)
		}
	}()
	return reader
}

func twoMembers(ctx context.Context) error {
	if err := createTopic(ctx, "two", 4); err != nil {
		return err
	}
	var ones, others atomic.Int64
	one, other := member(ctx, &ones), member(ctx, &others)
	shared := until(ctx, "two partitions each", func() bool {
		answer, err := client().DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{"two"}})
		if err != nil || answer.Groups[0].GroupState != "Stable" || len(answer.Groups[0].Members) != 2 {
			return false
		}
		for _, each := range answer.Groups[0].Members {
			if len(each.MemberAssignments.Topics) != 1 || len(each.MemberAssignments.Topics[0].Partitions) != 2 {
				return false
			}
		}
		return true
	})
	producer := writer("two")
	defer producer.Close()
	if err := first(shared, producer.WriteMessages(ctx, messages()...)); err != nil {
		return err
	}
	if err := until(ctx, "every record once", func() bool { return ones.Load()+others.Load() == count }); err != nil {
		return err
	}
	closed := first(one.Close(), other.Close())
	asked := map[string][]int{"two": {0, 1, 2, 3}}
	offsets, err := client().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: "two", Topics: asked})
	if err != nil {
		return err
	}
	committed := int64(0)
	for _, partition := range offsets.Topics["two"] {
		committed += partition.CommittedOffset
	}
	return first(closed, expect("committed", committed, int64(count)))
}
