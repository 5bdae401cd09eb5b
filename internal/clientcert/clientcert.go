// Package clientcert shows a certificate to servers that ask for one.
package clientcert

import (
	"crypto/tls"
	"fmt"
)

// Parameter names the file in the URL of Redis and in the DSN of MySQL.
const Parameter = "client_cert"

// Add has c show the certificate of a file in PEM, which has the chain and the key, too. The file is
// read for each connection, so that it may be renewed. An error is that of the file as it is now.
func Add(c *tls.Config, file string) error {
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(file, file)
		return &cert, err
	}
	if _, err := load(); err != nil {
		return fmt.Errorf("%s: want a file in PEM with a certificate and its key: %w", Parameter, err)
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return nil
}
