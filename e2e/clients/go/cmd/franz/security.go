package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kafscale.example/e2e/record"
)

func options(a record.Args, more ...kgo.Opt) []kgo.Opt {
	found := append([]kgo.Opt{kgo.SeedBrokers(a.Bootstrap)}, more...)
	s := a.Security()
	if s == nil {
		return found
	}
	found = append(found, kgo.ClientID(a.Name))
	if config := s.TLS(); config != nil {
		found = append(found, kgo.DialTLSConfig(config))
	}
	if s.Mechanism != "" {
		found = append(found, kgo.SASL(mechanism(s)))
	}
	return found
}

func mechanism(s *record.Security) sasl.Mechanism {
	switch s.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := s.Token()
			return oauth.Auth{Token: token}, err
		})
	default:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	}
}
