package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/activityd/activityd/internal/member"
)

// httpClient requests photos over one connection. It does as little else as possible, so
// that the server is measured and not the client.
type httpClient struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
}

func dialHTTP(ctx context.Context, addr string) (*httpClient, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &httpClient{conn: conn, answers: bufio.NewReader(conn)}, nil
}

// errRefused is that of an answer 503.
var errRefused = errors.New("refused")

// get requests a viewer's photos and returns the length of the answer in bytes. Any
// status but 200 is an error, [errRefused] if it is 503: then the connection can be used on.
func (c *httpClient) get(viewer member.ID) (length int64, err error) {
	c.request = fmt.Appendf(c.request[:0], "GET /v1/users/%s/recent-contact-photos HTTP/1.1\r\nHost: localhost\r\n\r\n", viewer)
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	status, err := c.answers.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	refused := bytes.HasPrefix(status, []byte("HTTP/1.1 503"))
	if !refused && !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return 0, fmt.Errorf("viewer %s was answered %q", viewer, status)
	}
	if length, err = c.length(); err != nil {
		return 0, err
	}
	if _, err = io.CopyN(io.Discard, c.answers, length); err == nil && refused {
		err = errRefused
	}
	return length, err
}

// length reads the header and returns the length of the body.
func (c *httpClient) length() (n int64, err error) {
	n = -1
	for {
		line, err := c.answers.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if n, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, err
			}
		}
	}
	if n < 0 {
		return 0, errors.New("an answer without Content-Length")
	}
	return n, nil
}

// Close closes the connection.
func (c *httpClient) Close() error { return c.conn.Close() }
