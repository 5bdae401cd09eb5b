package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// secured is a private authority. Its Redis or Sentinel wants TLS, a certificate of its clients, and the password of
// its only user.
type secured struct{ *servertest.Authority }

// options returns the options of TLS for a host and a port, in the form of a configuration.
func (s secured) options(t *testing.T, host, port string) []string {
	t.Helper()
	file := s.Issue(t, host)
	return []string{
		"bind " + host, "tls-port " + port, "tls-cert-file " + file, "tls-key-file " + file, "tls-ca-cert-file " + s.File, "tls-auth-clients yes", "tls-replication yes",
	}
}

// server starts a Redis with the user "site" alone.
func (s secured) server(t *testing.T, host, port string, args ...string) *redis.Client {
	t.Helper()
	for _, option := range s.options(t, host, port) {
		name, value, _ := strings.Cut(option, " ")
		args = append(args, "--"+name, value)
	}
	server := servertest.Redis(t, args...)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// only makes a user with a password the only user.
func only(t *testing.T, client *redis.Client, user, password string) {
	t.Helper()
	must(t, client.Do(t.Context(), "ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all").Err())
	must(t, client.Do(t.Context(), "ACL", "SETUSER", "default", "off").Err())
}

// list runs activityd once show in a process that trusts the authority.
func (s secured) list(t *testing.T, url string) (said string, code int) {
	t.Helper()
	p := spawn(t, []string{"SSL_CERT_FILE=" + s.File}, "once", "show", "--redis-url", url)
	code = p.wait()
	return p.out.String() + p.log.String(), code
}

// check wants a URL to work as it is, and to fail when a part of wrong replaces the right part.
func (s secured) check(t *testing.T, url string, wrong ...[2]string) {
	t.Helper()
	if said, code := s.list(t, url); code != exitOK || said != "no name has a state\n" {
		t.Errorf("%s: exit code %d: %s", url, code, said)
	}
	for _, w := range wrong {
		if said, code := s.list(t, strings.Replace(url, w[0], w[1], 1)); code == exitOK {
			t.Errorf("with %q instead of %q: %s", w[1], w[0], said)
		}
	}
}

// User and password of the URL are the server's, and the parameters have the Sentinels'. Each server shows a
// certificate of its own host.
func TestSentinelWithPasswordsAndTLS(t *testing.T) {
	t.Parallel()
	s := secured{servertest.NewAuthority(t)}
	host, port := servertest.FreePort(t)
	only(t, s.server(t, host, port), "site", "s3cret")
	sentinelHost, sentinelPort := servertest.FreePort(t)
	sentinel, err := localserver.StartSentinel(t.Context(), slices.Concat(s.options(t, sentinelHost, sentinelPort), []string{
		"sentinel monitor m " + host + " " + port + " 1", "sentinel auth-user m site", "sentinel auth-pass m s3cret",
	})...)
	must(t, err)
	t.Cleanup(func() { _ = sentinel.Close() })
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: sentinel.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	only(t, admin, "watch", "w4tch")
	client := "&client_cert=" + s.Issue(t, "127.0.0.1")
	s.check(t, "rediss+sentinel://site:s3cret@"+sentinelHost+":"+sentinelPort+"/0?master_name=m&sentinel_username=watch&sentinel_password=w4tch&dial_timeout=10s"+client,
		[2]string{"s3cret", "w4tch"}, [2]string{"w4tch", "s3cret"}, [2]string{client, ""}, [2]string{"rediss+", "redis+"})
}

// The certificate of a cluster's node is checked against the node's host, and not against the first of the URL.
func TestClusterWithTLS(t *testing.T) {
	t.Parallel()
	s := secured{servertest.NewAuthority(t)}
	host, port := servertest.FreePort(t)
	other, _ := servertest.FreePort(t)
	admin := s.server(t, host, port, "--cluster-enabled", "yes", "--cluster-announce-ip", host)
	must(t, admin.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	eventually(t, "the cluster is there", func() bool {
		info, err := admin.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	only(t, admin, "site", "s3cret")
	client := "&client_cert=" + s.Issue(t, "127.0.0.1")
	s.check(t, "rediss+cluster://site:s3cret@"+other+":1?addr="+host+":"+port+client, [2]string{client, ""}, [2]string{"s3cret", "w4tch"})
}
