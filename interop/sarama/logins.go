package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// scramClient is what Sarama leaves to its users: the dialogue itself.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }

type token string

func (t token) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(t)}, nil }

// logsIn lets the right secret in and is told that the other is wrong.
func logsIn(_ context.Context, mechanism sarama.SASLMechanism) error {
	right, wrong := os.Getenv("LOGIN_PASSWORD"), "wrong"
	if mechanism == sarama.SASLTypeOAuth {
		right, wrong = os.Getenv("LOGIN_TOKEN"), os.Getenv("LOGIN_EXPIRED_TOKEN")
	}
	if err := connect(mechanism, right); err != nil {
		return err
	}
	if err := connect(mechanism, wrong); !errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
		return fmt.Errorf("a wrong secret: got %v", err)
	}
	return nil
}

func connect(mechanism sarama.SASLMechanism, secret string) error {
	authority, err := os.ReadFile(os.Getenv("LOGIN_CA"))
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	config := settings()
	config.Net.TLS.Enable, config.Net.TLS.Config = true, &tls.Config{RootCAs: trusted, ServerName: "localhost"}
	config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, mechanism
	config.Net.SASL.User, config.Net.SASL.Password = os.Getenv("LOGIN_USER"), secret
	config.Net.SASL.TokenProvider = token(secret)
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		if mechanism == sarama.SASLTypeSCRAMSHA256 {
			return &scramClient{hash: scram.SHA256}
		}
		return &scramClient{hash: scram.SHA512}
	}
	broker := sarama.NewBroker(os.Getenv("LOGIN_ADDRESS"))
	if err := broker.Open(config); err != nil {
		return err
	}
	defer broker.Close()
	if _, err := broker.Connected(); err != nil {
		return err
	}
	_, err = broker.GetMetadata(&sarama.MetadataRequest{Version: 1})
	return err
}
