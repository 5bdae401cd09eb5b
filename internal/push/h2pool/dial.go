package h2pool

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// connect opens a connection with TLS to the pool's address.
func (p *Pool) connect(ctx context.Context) (*tls.Conn, error) {
	raw, err := p.reach(ctx)
	if err != nil {
		return nil, err
	}
	config := p.TLS.Clone()
	config.ServerName = p.host
	config.NextProtos = []string{"h2"}
	// Batches are larger than a packet.
	config.DynamicRecordSizingDisabled = true
	if p.HTTP1 {
		config.NextProtos = append(config.NextProtos, "http/1.1")
	}
	c, err := handshake(ctx, raw, config)
	if err == nil && !p.HTTP1 && c.ConnectionState().NegotiatedProtocol != "h2" {
		_ = c.Close()
		return nil, errors.New("the server does not speak HTTP/2")
	}
	return c, err
}

// handshake is of TLS. If it fails, the connection is closed.
func handshake(ctx context.Context, raw net.Conn, config *tls.Config) (*tls.Conn, error) {
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// reach opens a connection to the pool's address, by a proxy if there is one.
func (p *Pool) reach(ctx context.Context) (net.Conn, error) {
	var through *url.URL
	if p.Proxy != nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.authority+"/", http.NoBody)
		if err != nil {
			return nil, err
		}
		if through, err = p.Proxy(r); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	if through == nil {
		return p.Dial(ctx, "tcp", p.Address)
	}
	c, err := p.tunnel(ctx, through)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", through.Host, err)
	}
	return c, nil
}

// tunnel opens a connection to the pool's address by a proxy.
func (p *Pool) tunnel(ctx context.Context, through *url.URL) (net.Conn, error) {
	ports := map[string]string{"http": "80", "https": "443"}
	port, known := ports[through.Scheme]
	if !known {
		return nil, fmt.Errorf("there is no way to use a proxy by %q", through.Scheme)
	}
	address := net.JoinHostPort(through.Hostname(), cmp.Or(through.Port(), port))
	c, err := p.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if through.Scheme == "https" {
		config := p.TLS.Clone()
		config.ServerName, config.NextProtos, config.VerifyConnection = through.Hostname(), []string{"http/1.1"}, nil
		if c, err = handshake(ctx, c, config); err != nil {
			return nil, err
		}
	}
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: p.Address}, Host: p.Address, Header: http.Header{}}
	if through.User != nil {
		password, _ := through.User.Password()
		pair := through.User.Username() + ":" + password
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	err = ask(c, r)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// ask has a proxy open a tunnel.
func ask(c net.Conn, r *http.Request) error {
	if err := r.Write(c); err != nil {
		return err
	}
	// The peer waits for our first bytes, so nothing is behind the answer.
	response, err := http.ReadResponse(bufio.NewReader(http.MaxBytesReader(nil, c, maxAnswer)), r)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // it is not of use: the connection is a tunnel now, or closed
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %q", response.Status)
	}
	return nil
}
