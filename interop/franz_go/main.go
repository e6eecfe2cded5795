// franz-go against the broker whose address is the first argument.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 300

var address string

func main() {
	address = os.Args[1]
	fmt.Println("version", version())
	all := &checks{}
	all.check("topics, partitions, configs and cluster", administer)
	all.check("delete records and list offsets", deleteRecords)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		all.check("idempotent produce and read back ("+name+")", func(ctx context.Context) error {
			return roundTrip(ctx, "round-trip-"+name, kgo.ProducerBatchCompression(codecs[name]))
		})
	}
	all.check("acks 1 without idempotence", func(ctx context.Context) error {
		return roundTrip(ctx, "acks-1", kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	})
	all.check("topic created by the first produce", autoCreated)
	all.check("read by offset and time", seek)
	all.check("two members (cooperative-sticky)", func(ctx context.Context) error {
		return twoMembers(ctx, "two-sticky", kgo.CooperativeStickyBalancer())
	})
	all.check("two members (range)", func(ctx context.Context) error {
		return twoMembers(ctx, "two-range", kgo.RangeBalancer())
	})
	all.check("group resumes where it committed", resumes)
	all.check("describe groups and lag", describeGroups)
	for _, each := range []struct {
		version string
		epoch   int16 // after ten transactions
		options []kgo.Opt
	}{{"1", 0, []kgo.Opt{oldVersions()}}, {"2", 10, nil}} {
		all.check("transactions, committed and aborted (version "+each.version+")", func(ctx context.Context) error {
			return transactions(ctx, "transactions-"+each.version, each.epoch, each.options...)
		})
		all.check("consume, transform, produce with GroupTransactSession (version "+each.version+")",
			func(ctx context.Context) error { return session(ctx, "session-"+each.version, each.options...) })
	}
	all.check("an open transaction is described, and fenced by its successor", fenced)
	all.check("a transaction in the format stream is rejected", notInStreams)
	all.check("the newer group protocol falls back to the classic one", fallsBack)
	all.check("share groups are rejected", shareGroup)
	all.check("small admin calls", smallAdmin)
	all.check("the broker is detected as 4.x", versionGuess)
	for name, pair := range mechanisms() {
		all.check("login over TLS ("+name+"), and a wrong secret", func(ctx context.Context) error {
			return logsIn(ctx, pair)
		})
	}
	if all.failures > 0 {
		os.Exit(1)
	}
}

// client has default settings but for what a check names.
func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address)}, options...)...)
	if err != nil {
		panic(err)
	}
	return made
}

func admin() *kadm.Client { return kadm.NewClient(client()) }

func createTopic(ctx context.Context, topic string, partitions int32) error {
	cluster := admin()
	defer cluster.Close()
	_, err := cluster.CreateTopic(ctx, partitions, -1, nil, topic)
	return err
}

// fill gives each partition the values 0, 1, 2, ... with the timestamps 1000, 2000, 3000, ...
func fill(ctx context.Context, topic string, partitions int32, each int) error {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	var records []*kgo.Record
	for partition := range partitions {
		for n := range each {
			records = append(records, &kgo.Record{
				Topic: topic, Partition: partition, Value: fmt.Append(nil, n), Timestamp: time.UnixMilli(int64(1000 * (n + 1))),
			})
		}
	}
	return first(createTopic(ctx, topic, partitions), producer.ProduceSync(ctx, records...).FirstErr())
}

// read polls until so many records have come.
func read(ctx context.Context, consumer *kgo.Client, wanted int) ([]*kgo.Record, error) {
	var records []*kgo.Record
	for len(records) < wanted {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return records, err
		}
		records = append(records, fetches.Records()...)
	}
	return records, nil
}

func administer(ctx context.Context) error {
	cluster := admin()
	defer cluster.Close()
	retention := "60000"
	if _, err := cluster.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, "admin"); err != nil {
		return err
	}
	_, again := cluster.CreateTopic(ctx, 2, 1, nil, "admin")
	if !errors.Is(again, kerr.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", again)
	}
	grown, err := cluster.UpdatePartitions(ctx, 3, "admin")
	if err := first(err, grown.Error()); err != nil {
		return err
	}
	longer := "70000"
	set := kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: &longer}
	altered, err := cluster.AlterTopicConfigs(ctx, []kadm.AlterConfig{set}, "admin")
	if err := first(err, altered[0].Err); err != nil {
		return err
	}
	configs, err := cluster.DescribeTopicConfigs(ctx, "admin")
	if err != nil {
		return err
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" && config.MaybeValue() != longer {
			return fmt.Errorf("retention.ms is %s", config.MaybeValue())
		}
	}
	metadata, err := cluster.Metadata(ctx, "admin")
	if err != nil {
		return err
	}
	dirs, errDirs := cluster.DescribeAllLogDirs(ctx, nil)
	deleted, errDeleted := cluster.DeleteTopics(ctx, "admin")
	return first(
		errDirs, errDeleted, deleted.Error(),
		expect("brokers with log dirs", len(dirs), 1),
		expect("partitions", len(metadata.Topics["admin"].Partitions), 3),
		expect("brokers", len(metadata.Brokers), 1),
		expect("controller", metadata.Controller, metadata.Brokers[0].NodeID),
	)
}

func deleteRecords(ctx context.Context) error {
	if err := fill(ctx, "records", 1, 5); err != nil {
		return err
	}
	cluster := admin()
	defer cluster.Close()
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: "records", Partition: 0, At: 3})
	deleted, err := cluster.DeleteRecords(ctx, before)
	if err := first(err, deleted.Error()); err != nil {
		return err
	}
	start, errStart := cluster.ListStartOffsets(ctx, "records")
	end, errEnd := cluster.ListEndOffsets(ctx, "records")
	newest, errNewest := cluster.ListMaxTimestampOffsets(ctx, "records")
	if err := first(errStart, errEnd, errNewest); err != nil {
		return err
	}
	return first(
		expect("start", start["records"][0].Offset, int64(3)),
		expect("end", end["records"][0].Offset, int64(5)),
		expect("max timestamp", newest["records"][0].Timestamp, int64(5000)),
	)
}

// roundTrip: keys, values and headers that are absent, empty, short and long come back byte for byte.
func roundTrip(ctx context.Context, topic string, options ...kgo.Opt) error {
	if err := createTopic(ctx, topic, 2); err != nil {
		return err
	}
	producer := client(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4000))...)
	defer producer.Close()
	var sent []*kgo.Record
	for n := range count {
		sent = append(sent, mixed(topic, n))
	}
	if err := producer.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return err
	}
	consumer := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	records, err := read(ctx, consumer, count)
	if err != nil {
		return err
	}
	for _, got := range records {
		want := mixed(topic, int(got.Offset)*2+int(got.Partition))
		same := first(
			expect("key is null", got.Key == nil, want.Key == nil),
			expect("value is null", got.Value == nil, want.Value == nil),
			expect("key", bytes.Equal(got.Key, want.Key), true),
			expect("value", bytes.Equal(got.Value, want.Value), true),
			expect("headers", got.Headers, want.Headers),
			expect("timestamp", got.Timestamp.UnixMilli(), want.Timestamp.UnixMilli()),
		)
		if same != nil {
			return fmt.Errorf("at %d:%d: %w", got.Partition, got.Offset, same)
		}
	}
	return expect("records", len(records), count)
}

func mixed(topic string, n int) *kgo.Record {
	record := &kgo.Record{Topic: topic, Partition: int32(n % 2), Timestamp: time.UnixMilli(int64(1_700_000_000_000 + n))}
	if n%5 > 0 {
		record.Key = bytes.Repeat([]byte("k"), n%5-1)
	}
	if n%7 > 0 {
		record.Value = bytes.Repeat([]byte{byte(n)}, (n%7-1)*n)
	}
	if n%3 == 0 {
		record.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("first")}, {Key: "h"}, {Key: "ü", Value: []byte{}}}
	}
	return record
}

func autoCreated(ctx context.Context) error {
	producer := client(kgo.AllowAutoTopicCreation())
	defer producer.Close()
	record, err := producer.ProduceSync(ctx, &kgo.Record{Topic: "unheard-of", Value: []byte("first")}).First()
	if err != nil {
		return err
	}
	return expect("offset", record.Offset, int64(0))
}

func seek(ctx context.Context) error {
	if err := fill(ctx, "seek", 1, 10); err != nil {
		return err
	}
	starts := map[string]kgo.Offset{
		"3": kgo.NewOffset().AfterMilli(3500), "7": kgo.NewOffset().At(7), "8": kgo.NewOffset().AtEnd().Relative(-2),
	}
	for value, start := range starts {
		consumer := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"seek": {0: start}}))
		records, err := read(ctx, consumer, 1)
		consumer.Close()
		if err != nil {
			return err
		}
		if err := expect("first record", string(records[0].Value), value); err != nil {
			return err
		}
	}
	return nil
}
