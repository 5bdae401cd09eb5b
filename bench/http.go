package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// conn is a connection of HTTP/1.1 that does as little as possible, so that the benchmark
// measures the server and not its client. It is for a single goroutine.
type conn struct {
	net.Conn
	answers *bufio.Reader
}

func dial(ctx context.Context, addr string) (*conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

// do sends a request and returns the status and the body of the answer. The answer must have a
// Content-Length.
func (c *conn) do(method, path, body string) (status int, answer []byte, err error) {
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	if err != nil {
		return 0, nil, err
	}
	line, err := c.answers.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 {
		return 0, nil, fmt.Errorf("the answer begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length := -1
	for {
		line, err := c.answers.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if len(name) == 0 {
			break
		}
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, err
			}
		}
	}
	if length < 0 {
		return 0, nil, errors.New("an answer without Content-Length")
	}
	answer = make([]byte, length)
	_, err = io.ReadFull(c.answers, answer)
	return status, answer, err
}

// must is do for requests that are not to be refused.
func (c *conn) must(method, path, body string, want int) ([]byte, error) {
	status, answer, err := c.do(method, path, body)
	if err == nil && status != want {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	return answer, err
}

// dials opens n connections; close closes them.
func dials(ctx context.Context, addr string, n int) (list []*conn, closeAll func(), err error) {
	closeAll = func() {
		for _, c := range list {
			_ = c.Close()
		}
	}
	for range n {
		c, err := dial(ctx, addr)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		list = append(list, c)
	}
	return list, closeAll, nil
}

// read asks for a viewer's photos, and returns whose they are, 0 for none.
func (c *conn) read(viewer int) (contact uint64, source string, err error) {
	text, err := c.must(http.MethodGet, fmt.Sprintf("/v1/users/%d/recent-contact-photos?limit=%d", viewer, shown), "", http.StatusOK)
	if err != nil {
		return 0, "", err
	}
	var answer struct {
		Contact struct {
			ID uint64 `json:"id,string"`
		} `json:"contact"`
		Source string `json:"source"`
	}
	err = json.Unmarshal(text, &answer)
	return answer.Contact.ID, answer.Source, err
}
