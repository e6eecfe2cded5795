// Sarama against the broker whose address is the first argument.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const count = 200

var address string

func main() {
	address = os.Args[1]
	fmt.Println("version", version())
	all := &checks{}
	all.check("topics, partitions, configs and cluster", administer)
	for _, codec := range []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
		sarama.CompressionZSTD,
	} {
		all.check("produce and read back ("+codec.String()+")", func(ctx context.Context) error {
			config := settings()
			config.Producer.Compression = codec
			return roundTrip(ctx, "round-trip-"+codec.String(), config)
		})
	}
	all.check("idempotent produce and read back", func(ctx context.Context) error {
		config := settings()
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
		return roundTrip(ctx, "idempotent", config)
	})
	all.check("offsets by time", byTime)
	all.check("two members and their commits", twoMembers)
	all.check("transactions, committed and aborted", transactions)
	all.check("offsets in a transaction", transactionalOffsets)
	all.check("a transaction in the format stream is rejected", notInStreams)
	for _, mechanism := range []sarama.SASLMechanism{
		sarama.SASLTypePlaintext, sarama.SASLTypeSCRAMSHA256, sarama.SASLTypeSCRAMSHA512, sarama.SASLTypeOAuth,
	} {
		all.check("login over TLS ("+string(mechanism)+"), and a wrong secret", func(ctx context.Context) error {
			return logsIn(ctx, mechanism)
		})
	}
	if all.failures > 0 {
		os.Exit(1)
	}
}

// settings are the defaults, but that a producer reports what it sent, as its blocking form requires.
func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	return config
}

func administer(context.Context) error {
	admin, err := sarama.NewClusterAdmin([]string{address}, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	retention, longer := "60000", "70000"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	if err := admin.CreateTopic("admin", detail, false); err != nil {
		return err
	}
	if again := admin.CreateTopic("admin", detail, false); !errors.Is(again, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", again)
	}
	grown := admin.CreatePartitions("admin", 3, nil, false)
	altered := admin.AlterConfig(sarama.TopicResource, "admin", map[string]*string{"retention.ms": &longer}, false)
	if err := first(grown, altered); err != nil {
		return err
	}
	configs, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: "admin", ConfigNames: []string{"retention.ms"},
	})
	if err != nil {
		return err
	}
	topics, err := admin.DescribeTopics([]string{"admin"})
	if err != nil {
		return err
	}
	brokers, _, err := admin.DescribeCluster()
	return first(
		err,
		expect("retention.ms", configs[0].Value, longer),
		expect("partitions", len(topics[0].Partitions), 3),
		expect("brokers", len(brokers), 1),
		admin.DeleteTopic("admin"),
	)
}

func roundTrip(ctx context.Context, topic string, config *sarama.Config) error {
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for n := range count {
		message := &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("key-", n)), Timestamp: time.UnixMilli(int64(1000 * (n + 1))),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("first")}},
		}
		if n%7 > 0 {
			message.Value = sarama.StringEncoder(strings.Repeat("x", n))
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumer([]string{address}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	for n := range count {
		select {
		case got := <-partition.Messages():
			same := first(
				expect("offset", got.Offset, int64(n)),
				expect("key", string(got.Key), fmt.Sprint("key-", n)),
				expect("value is null", got.Value == nil, n%7 == 0),
				expect("value", n%7 == 0 || string(got.Value) == strings.Repeat("x", n), true),
				expect("header", string(got.Headers[0].Value), "first"),
				expect("timestamp", got.Timestamp.UnixMilli(), int64(1000*(n+1))),
			)
			if same != nil {
				return same
			}
		case <-ctx.Done():
			return fmt.Errorf("after %d records: %w", n, ctx.Err())
		}
	}
	return nil
}

func byTime(context.Context) error {
	client, err := sarama.NewClient([]string{address}, settings())
	if err != nil {
		return err
	}
	defer client.Close()
	found, errFound := client.GetOffset("idempotent", 0, 3500)
	oldest, errOldest := client.GetOffset("idempotent", 0, sarama.OffsetOldest)
	newest, errNewest := client.GetOffset("idempotent", 0, sarama.OffsetNewest)
	return first(
		errFound, errOldest, errNewest,
		expect("by time", found, int64(3)), expect("oldest", oldest, int64(0)), expect("newest", newest, int64(count)),
	)
}

// member notes what one member of a group was assigned and has seen, and commits all of it.
type member struct {
	mutex      sync.Mutex
	partitions int
	seen       int
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.partitions = len(session.Claims()["two"])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		m.mutex.Lock()
		m.seen++
		m.mutex.Unlock()
	}
	return nil
}

func (m *member) state() (partitions, seen int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.partitions, m.seen
}

// join runs a member until the returned function ends it.
func join(ctx context.Context) (*member, func() error, error) {
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	group, err := sarama.NewConsumerGroup([]string{address}, "two", config)
	if err != nil {
		return nil, nil, err
	}
	joined := &member{}
	go func() {
		for ctx.Err() == nil && !errors.Is(group.Consume(ctx, []string{"two"}, joined), sarama.ErrClosedConsumerGroup) {
		}
	}()
	return joined, group.Close, nil
}

func twoMembers(ctx context.Context) error {
	admin, err := sarama.NewClusterAdmin([]string{address}, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic("two", &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	one, leaveOne, err := join(ctx)
	if err != nil {
		return err
	}
	other, leaveOther, err := join(ctx)
	if err != nil {
		return err
	}
	shared := until(ctx, "two partitions each", func() bool {
		ones, _ := one.state()
		others, _ := other.state()
		return ones == 2 && others == 2
	})
	produced := produceTo("two")
	seen := until(ctx, "every record once", func() bool {
		_, ones := one.state()
		_, others := other.state()
		return ones+others == count
	})
	if err := first(shared, produced, seen, leaveOne(), leaveOther()); err != nil {
		return err
	}
	offsets, err := admin.ListConsumerGroupOffsets("two", map[string][]int32{"two": {0, 1, 2, 3}})
	if err != nil {
		return err
	}
	committed := int64(0)
	for partition := range int32(4) {
		committed += offsets.GetBlock("two", partition).Offset
	}
	return first(expect("committed", committed, int64(count)), admin.DeleteConsumerGroup("two"))
}

func produceTo(topic string) error {
	producer, err := sarama.NewSyncProducer([]string{address}, settings())
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := range count {
		key := sarama.StringEncoder(fmt.Sprint(n))
		message := &sarama.ProducerMessage{Topic: topic, Key: key, Value: sarama.StringEncoder("x")}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	return nil
}
