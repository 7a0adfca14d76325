package record

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"strings"
)

// Security is how the client gets in, from the file that --security names. An absent field is empty.
type Security struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	TokenFile   string `json:"token_file"`
}

// Security reads the file; nil without one.
func (a Args) Security() *Security {
	if a.SecurityFile == "" {
		return nil
	}
	content, err := os.ReadFile(a.SecurityFile)
	Must(err)
	var s Security
	Must(json.Unmarshal(content, &s))
	return &s
}

// TLS trusts the CA, and has the client's certificate if there is one; nil without a CA.
func (s *Security) TLS() *tls.Config {
	if s.CA == "" {
		return nil
	}
	pem, err := os.ReadFile(s.CA)
	Must(err)
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		Must(errors.New("no certificate in " + s.CA))
	}
	config := &tls.Config{RootCAs: authorities}
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
		Must(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

// Token is read for each login: another program renews the file.
func (s *Security) Token() (string, error) {
	content, err := os.ReadFile(s.TokenFile)
	return strings.TrimSpace(string(content)), err
}
