package access

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"
)

// Certificate is what the server shows its clients. It may be replaced at any
// time, and is safe for concurrent use.
type Certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// FollowCertificate reads a certificate with its chain, and its key, both in PEM.
// Run the [Follower] to have them follow their files. An error is about files
// that cannot be read, or do not belong together.
func FollowCertificate(certFile, keyFile string, o Options) (*Certificate, *Follower, error) {
	c := &Certificate{}
	f, err := follow(Follower{
		what: "TLS certificate", paths: []string{certFile, keyFile}, public: 1, private: "key of the TLS certificate",
		take: func(ctx context.Context, files []file) error { return c.takeFiles(ctx, files[0], files[1], o) },
	}, o)
	if err != nil {
		return nil, nil, fmt.Errorf("the TLS certificate cannot be used: %w", err)
	}
	return c, f, nil
}

func (c *Certificate) takeFiles(ctx context.Context, cert, key file, o Options) error {
	pair, err := tls.X509KeyPair(cert.text, key.text)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", cert.path, key.path, err)
	}
	c.current.Store(&pair)
	certificateEnd.WithLabelValues().Set(float64(pair.Leaf.NotAfter.Unix()))
	o.Log.InfoContext(ctx, "took the TLS certificate", "file", cert.path, "names", pair.Leaf.DNSNames, "not_after", pair.Leaf.NotAfter)
	if now := time.Now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
		o.Log.WarnContext(ctx, "the TLS certificate is not valid now: clients will refuse it", "file", cert.path,
			"not_before", pair.Leaf.NotBefore, "not_after", pair.Leaf.NotAfter)
	}
	return nil
}

// TLS returns the configuration of a server that shows the certificate: TLS 1.2
// or newer. A replaced certificate is shown from the next connection on.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
