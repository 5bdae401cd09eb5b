package auth

import (
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"
)

// LoadCertificate loads a certificate with its chain, and its key, both in PEM. It returns the configuration of a server
// with that certificate: TLS 1.2 or newer. After a [Reloader.Reload] the next connections use the new
// certificate. It fails if a file is unreadable, or the two do not belong together.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*tls.Config, *Reloader, error) {
	var current atomic.Pointer[tls.Certificate]
	r, err := load(&Reloader{what: "TLS certificate", paths: []string{certFile, keyFile}, log: log, use: func(texts [][]byte) error {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return err
		}
		current.Store(&pair)
		certificateEnd.WithLabelValues().Set(float64(pair.Leaf.NotAfter.Unix()))
		if now := time.Now(); now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter) {
			log.Warn("TLS certificate is not valid now", "file", certFile, "not_before", pair.Leaf.NotBefore, "not_after", pair.Leaf.NotAfter)
		}
		return nil
	}})
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
	}, r, err
}
