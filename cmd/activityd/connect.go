package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/clientcert"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/wake"
)

// serversConfig is the part about the servers.
type serversConfig struct {
	mysqlDSN         string
	mysqlConnections int
	redisURL         string
}

func (c *serversConfig) serverFlags(f *pflag.FlagSet) {
	c.mysqlFlags(f)
	c.redisFlags(f)
}

func (c *serversConfig) mysqlFlags(f *pflag.FlagSet) {
	f.StringVar(&c.mysqlDSN, "mysql-dsn", "", "the site's database, `user:password@tcp(host:3306)/name`; it must be the primary (required)")
	f.Var(settings.NewNumber(&c.mysqlConnections, 32, 4, 100_000, "connections"), "mysql-connections",
		"max connections to MySQL; an eighth is for requests with tasks and devices, another eighth is kept free of reads")
	settings.NoFlag(f, "mysql-connections")
}

func (c *serversConfig) redisFlags(f *pflag.FlagSet) {
	f.StringVar(&c.redisURL, "redis-url", "redis://127.0.0.1:6379/0",
		"`URL` of the index's Redis: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://")
}

// notifyFlag is for commands that enqueue, and can do without Redis.
func (c *serversConfig) notifyFlag(f *pflag.FlagSet) {
	f.StringVar(&c.redisURL, "redis-url", "", "`URL` of the index's Redis, to notify idle workers; without it they find the tasks at their next poll")
}

func (c *serversConfig) checkServers(want wanted) {
	want("mysql-dsn", c.mysqlDSN != "", "is required: user:password@tcp(host:3306)/database")
}

// shares divides the connections to MySQL, as docs/why.md has it: reads of viewers have an upper limit, the API's other
// requests have a share of their own, and tasks take the rest.
func (c *serversConfig) shares() (reads, requests int) {
	requests = max(1, c.mysqlConnections/8)
	return c.mysqlConnections - 2*requests, requests
}

// openMySQL makes a pool of so many connections at most. It does not connect.
func openMySQL(c *config, connections int) (*sql.DB, error) {
	db, err := mysql.Open(c.mysqlDSN, mysql.WithMaxOpen(connections))
	if err != nil {
		return nil, fmt.Errorf("--mysql-dsn (%s): %w", settings.Variable("mysql-dsn"), err)
	}
	return db, nil
}

// redisURLError is why an address of Redis is refused. It quotes no URL, and with it no password.
type redisURLError string

func (e redisURLError) Error() string { return "--redis-url (ACTIVITYD_REDIS_URL): " + string(e) }

const (
	errRedisURL redisURLError = "cannot be read: want redis://user:password@host:6379/0, rediss://, unix:///path/to/socket, " +
		"redis+sentinel://host:26379/0?master_name=name or redis+cluster://host:6379?addr=host:6379"
	// errClusterDatabase: go-redis would take database 0 whatever the URL says.
	errClusterDatabase redisURLError = "names a database after the host, and a cluster has database 0 only: leave it out"
	// errSentinelLogin: a password that is ignored would show as NOAUTH.
	errSentinelLogin redisURLError = "leave out the parameters username and password: the server's are before the host, " +
		"as in redis+sentinel://user:password@host, and the Sentinels' are sentinel_username and sentinel_password"
	// errReplicas: a set on a replica may be old, and nothing would show it.
	errReplicas redisURLError = "leave out read_only, replica_only, route_by_latency and route_randomly: replicas may be behind"
	errNoTLS    redisURLError = clientcert.Parameter + " needs TLS: rediss:// instead of redis://"
)

const (
	// redisRetries: the client tries a command once more, for the connections that a restarted server has left in the
	// pool; after that the callers know the remedy better. It never repeats dialling, so that a read falls back at once.
	redisRetries, redisDials = 1, 1
	// redisDialTimeout is the default where there are several servers. A server out of reach may delay calls to the rest
	// for as long, as when the client asks for the slots of the servers.
	redisDialTimeout = time.Second
	// Parameters of the URL that go-redis does not know.
	sentinelUsername, sentinelPassword = "sentinel_username", "sentinel_password"
)

// noMaintenance tells the client not to ask a server for notifications of its maintenance. After a notification it
// would move connections to another server.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// openRedis makes a client for a server, a Sentinel or a Cluster. It does not connect.
func openRedis(address string) (redis.UniversalClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errRedisURL
	}
	kind, mode, _ := strings.Cut(u.Scheme, "+")
	u.Scheme = kind
	query, own := u.Query(), parameters{}
	for _, name := range []string{clientcert.Parameter, sentinelUsername, sentinelPassword} {
		if query.Has(name) && (mode == "sentinel" || name == clientcert.Parameter) {
			own[name] = query.Get(name)
			query.Del(name)
		}
	}
	u.RawQuery = query.Encode()
	switch {
	case mode == "":
		return openServer(u.String(), own)
	case mode == "sentinel":
		return openSentinel(u.String(), own)
	case mode != "cluster":
		return nil, errRedisURL
	case strings.Trim(u.Path, "/") != "" && u.Path != "/0":
		return nil, errClusterDatabase
	}
	return openCluster(u.String(), own)
}

func openServer(address string, own parameters) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil || o.DB < 0 {
		return nil, errRedisURL
	}
	if err := own.showCertificate(o.TLSConfig); err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDials
	o.MaintNotificationsConfig = noMaintenance()
	return redis.NewClient(o), nil
}

func openSentinel(address string, own parameters) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(address)
	switch {
	case err != nil || o.MasterName == "" || o.DB < 0:
		return nil, errRedisURL
	case o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly:
		return nil, errReplicas
	case o.Username+o.Password != "": // go-redis takes them from parameters
		return nil, errSentinelLogin
	}
	if err := own.showCertificate(o.TLSConfig); err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDials
	o.DialTimeout = cmp.Or(o.DialTimeout, redisDialTimeout)
	o.Username, o.Password = o.SentinelUsername, o.SentinelPassword // the user and password of the URL
	o.SentinelUsername, o.SentinelPassword = own[sentinelUsername], own[sentinelPassword]
	o.Dialer = dialSentinels(o)
	return redis.NewFailoverClient(o), nil
}

func openCluster(address string, own parameters) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(address)
	switch {
	case err != nil:
		return nil, errRedisURL
	case o.ReadOnly || o.RouteByLatency || o.RouteRandomly:
		return nil, errReplicas
	}
	if err := own.showCertificate(o.TLSConfig); err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDials
	o.DialTimeout, o.MaintNotificationsConfig = cmp.Or(o.DialTimeout, redisDialTimeout), noMaintenance()
	o.Dialer = dialer(o.DialTimeout, o.TLSConfig)
	return redis.NewClusterClient(o), nil
}

// parameters are the parameters of a URL that go-redis does not know, by their names.
type parameters map[string]string

// showCertificate has connections with TLS show the certificate of this process, if there is one.
func (p parameters) showCertificate(c *tls.Config) error {
	file, given := p[clientcert.Parameter]
	switch {
	case !given:
		return nil
	case c == nil:
		return errNoTLS
	}
	if err := clientcert.Add(c, file); err != nil {
		return fmt.Errorf("--redis-url (%s): %w", settings.Variable("redis-url"), err)
	}
	return nil
}

// dialer returns a function that connects to a server of several. With TLS it checks the certificate of each server
// against the dialled host. go-redis' dialer checks against the first host of the URL, and ignores the end of its
// context.
func dialer(timeout time.Duration, c *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	if c == nil {
		return plain.DialContext
	}
	c = c.Clone()
	c.ServerName = "" // that of the address
	return (&tls.Dialer{NetDialer: plain, Config: c}).DialContext
}

// runWake sends notifications to the workers of running processes until the caller calls stop. stop sends the last
// notifications. A Redis that is away is no error.
func runWake(ctx context.Context, w *wake.Wake, log io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(log, err)
		}
	}
}
