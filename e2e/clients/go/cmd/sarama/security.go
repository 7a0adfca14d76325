package main

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"kafscale.example/e2e/record"
)

func secure(c *sarama.Config, s *record.Security) {
	if config := s.TLS(); config != nil {
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = config
	}
	if s.Mechanism == "" {
		return
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
	c.Net.SASL.User = s.User
	c.Net.SASL.Password = s.Password
	c.Net.SASL.TokenProvider = token{s}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		if s.Mechanism == sarama.SASLTypeSCRAMSHA256 {
			return &conversation{hash: scram.SHA256}
		}
		return &conversation{hash: scram.SHA512}
	}
}

type token struct{ *record.Security }

func (t token) Token() (*sarama.AccessToken, error) {
	found, err := t.Security.Token()
	return &sarama.AccessToken{Token: found}, err
}

// conversation is a SCRAM exchange: sarama has none of its own.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}
