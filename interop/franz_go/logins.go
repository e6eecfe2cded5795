package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanisms has each with the right secret and with a wrong or expired one.
func mechanisms() map[string][2]sasl.Mechanism {
	user, password := os.Getenv("LOGIN_USER"), os.Getenv("LOGIN_PASSWORD")
	right, wrong := scram.Auth{User: user, Pass: password}, scram.Auth{User: user, Pass: "wrong"}
	return map[string][2]sasl.Mechanism{
		"PLAIN": {
			plain.Auth{User: user, Pass: password}.AsMechanism(), plain.Auth{User: user, Pass: "wrong"}.AsMechanism(),
		},
		"SCRAM-SHA-256": {right.AsSha256Mechanism(), wrong.AsSha256Mechanism()},
		"SCRAM-SHA-512": {right.AsSha512Mechanism(), wrong.AsSha512Mechanism()},
		"OAUTHBEARER": {
			oauth.Auth{Token: os.Getenv("LOGIN_TOKEN")}.AsMechanism(),
			oauth.Auth{Token: os.Getenv("LOGIN_EXPIRED_TOKEN")}.AsMechanism(),
		},
	}
}

// logsIn lets the right secret in and is told that the other is wrong, soon.
func logsIn(ctx context.Context, pair [2]sasl.Mechanism) error {
	if err := ping(ctx, pair[0]); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := ping(soon, pair[1])
	if pair[1].Name() == "OAUTHBEARER" && err != nil && strings.Contains(err.Error(), "unexpected data in oauth response") {
		return nil // the server says what is wrong with a token in its answer, and franz-go stops there
	}
	if !errors.Is(err, kerr.SaslAuthenticationFailed) {
		return fmt.Errorf("a wrong secret: got %v", err)
	}
	return nil
}

func ping(ctx context.Context, mechanism sasl.Mechanism) error {
	authority, err := os.ReadFile(os.Getenv("LOGIN_CA"))
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	one, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("LOGIN_ADDRESS")), kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
		kgo.SASL(mechanism), kgo.RequestRetries(1),
	)
	if err != nil {
		return err
	}
	defer one.Close()
	return one.Ping(ctx)
}
