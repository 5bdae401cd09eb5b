package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Strangers who open connections without end take neither the probes nor the metrics
// away, nor the connections to MySQL and Redis.
func TestStrangersLeaveFilesForTheRest(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	const files = 128
	p := spawnBy(t, []string{"sh", "-c", `ulimit -n ` + strconv.Itoa(files) + ` && exec "$0" "$@"`, self}, "--metrics-listen=127.0.0.1:0")
	metrics := "http://" + p.awaitLog(t, "listening for metrics")["address"]
	address := strings.TrimPrefix(p.url, "http://")
	first := dialKept(t, address) // the site's back-end
	first.read(t)
	var strangers []net.Conn
	for range 3 * files {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		strangers = append(strangers, c)
	}
	eventually(t, "it is ready", func() bool {
		status, body := page(t, metrics+"/readyz")
		return status == http.StatusOK && strings.Contains(body, `"status":"ok"`)
	})
	first.read(t)
	eventually(t, "those that are too many are refused", func() bool {
		return measured(t, metrics, "activityd_http_connections_refused_total") > 2*files
	})
	if open := measured(t, metrics, "activityd_http_connections"); open == 0 || open > files/2 {
		t.Errorf("%v connections are open, want at most %d", open, files/2)
	}
	for _, c := range append(strangers, first) {
		_ = c.Close()
	}
	eventually(t, "there is room again", func() bool { return measured(t, metrics, "activityd_http_connections") == 0 })
	if status, body := page(t, p.url+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
}

// backEnd is a connection that is kept.
type backEnd struct {
	net.Conn

	answers *bufio.Reader
}

func dialKept(t *testing.T, address string) backEnd {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	must(t, err)
	return backEnd{c, bufio.NewReader(c)}
}

// read asks for a member whom MySQL does not know.
func (b backEnd) read(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(b, "GET /v1/users/1/recent-contact-photos HTTP/1.1\r\nHost: localhost\r\n\r\n")
	must(t, err)
	response, err := http.ReadResponse(b.answers, nil)
	must(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	must(t, err)
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("a read by a connection that was there before: %d", response.StatusCode)
	}
}

// measured returns the value of a metric without labels.
func measured(t *testing.T, url, name string) float64 {
	t.Helper()
	_, body := page(t, url+"/metrics")
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body)
	if found == nil {
		t.Fatalf("there is no %s in\n%s", name, body)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	must(t, err)
	return value
}
