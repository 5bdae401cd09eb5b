package servertest

import (
	"database/sql"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// Replicated is a server that is the primary or a replica of another server.
type Replicated struct {
	*localserver.MySQL
	id    int
	admin *sql.DB
	words replicationWords
}

// replicationWords are the names of the roles in MariaDB, or in MySQL.
type replicationWords struct{ source, replica, change, start, host, status string }

func wordsOf(version string) replicationWords {
	if strings.Contains(version, "MariaDB") {
		return replicationWords{"master", "slave", "CHANGE MASTER TO", "SLAVE", "MASTER", "SHOW SLAVE STATUS"}
	}
	return replicationWords{"source", "replica", "CHANGE REPLICATION SOURCE TO GET_SOURCE_PUBLIC_KEY = 1,", "REPLICA", "SOURCE", "SHOW REPLICA STATUS"}
}

// NewPrimary starts a server with the schema in [Database], and with a user that may do
// all there, and that read_only binds: see [Replicated.SiteDSN]. It has no replica yet.
func NewPrimary(t testing.TB) *Replicated {
	t.Helper()
	r := newReplicated(t, 1)
	if err := create(t.Context(), r.MySQL, Database); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	r.Do(t, "CREATE USER site@localhost")
	r.Do(t, "GRANT ALL ON "+Database+".* TO site@localhost")
	return r
}

func newReplicated(t testing.TB, id int) *Replicated {
	t.Helper()
	m := startMySQL(t, "--log-bin=binlog", "--binlog-format=ROW", "--loose-log-slave-updates", "--loose-log-replica-updates",
		"--log-bin-trust-function-creators=1", fmt.Sprint("--server-id=", id),
		"--innodb-flush-log-at-trx-commit=2") // outlives kill -9
	r := &Replicated{m, id, adminOf(t, m), wordsOf(m.Version())}
	if r.isMySQL() { // MariaDB has them built in
		for _, role := range []string{r.words.source, r.words.replica} {
			r.Do(t, "INSTALL PLUGIN rpl_semi_sync_"+role+" SONAME 'semisync_"+role+".so'")
		}
	}
	// As docs/deploy.md has it, "MySQL fails over": NewReplica switches the source's part on.
	for _, set := range []string{
		r.words.replica + "_enabled = 1", r.words.source + "_enabled = 0",
		r.words.source + "_wait_point = 'AFTER_SYNC'", r.words.source + "_timeout = 3600000",
	} {
		r.Do(t, "SET GLOBAL rpl_semi_sync_"+set)
	}
	return r
}

// adminOf opens a server that may be killed.
func adminOf(t testing.TB, m *localserver.MySQL) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(m.DSN("mysql"))
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	cfg.Logger = &mysql.NopLogger{} // it would log lost connections
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	admin := sql.OpenDB(connector)
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

// NewReplica starts a replica of r, and has r await the receipt of each transaction by it
// before it commits. All that r ever did must be in its binary log. It returns when both
// are in step.
func (r *Replicated) NewReplica(t testing.TB) *Replicated {
	t.Helper()
	replica := newReplicated(t, r.id+1)
	host, port, err := net.SplitHostPort(NewProxy(t, r.Addr()).Addr())
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	w := r.words
	replica.SetReadOnly(t)
	replica.Do(t, fmt.Sprintf("%[1]s %[2]s_HOST = '%[3]s', %[2]s_PORT = %[4]s, %[2]s_USER = 'root', %[2]s_LOG_FILE = 'binlog.000001', %[2]s_LOG_POS = 4",
		w.change, w.host, host, port))
	replica.Do(t, "START "+w.start)
	Eventually(t, "the replica is attached", func() bool { return replica.replicaStatus(t)["IO_Running"] == "Yes" })
	r.Do(t, "SET GLOBAL rpl_semi_sync_"+w.source+"_enabled = 1")
	Eventually(t, "the replica is there", func() bool { return r.semisync(t, "clients") == "1" && r.semisync(t, "status") == "ON" })
	return replica
}

// SiteDSN is the address of the server for a user without rights beyond [Database].
func (r *Replicated) SiteDSN() string {
	cfg, err := mysql.ParseDSN(r.DSN(Database))
	if err != nil {
		panic(err) // its own
	}
	cfg.User = "site"
	return cfg.FormatDSN()
}

// Do runs a statement as root.
func (r *Replicated) Do(t testing.TB, statement string) {
	t.Helper()
	exec(t, r.admin, statement)
}

// Number asks for a number, as root.
func (r *Replicated) Number(t testing.TB, query string) (n int) {
	t.Helper()
	if err := r.admin.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("servertest: %s: %v", query, err)
	}
	return n
}

// SiteConnections counts the connections of the user of [Replicated.SiteDSN].
func (r *Replicated) SiteConnections(t testing.TB) (n int) {
	t.Helper()
	list, err := processes(t.Context(), r.admin)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	for _, p := range list {
		if p.User == "site" {
			n++
		}
	}
	return n
}

func (r *Replicated) semisync(t testing.TB, name string) string {
	t.Helper()
	return query(t, r.admin, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_"+r.words.source+"_"+name+"'")[0]["Value"]
}

// CheckSynchronous fails the test if anything was committed that the replica had not received.
func (r *Replicated) CheckSynchronous(t testing.TB) {
	t.Helper()
	if status := r.semisync(t, "status"); status != "ON" {
		t.Errorf("servertest: the replication is not semi-synchronous any more: %s", status)
	}
	if n := r.semisync(t, "yes_tx"); n == "0" {
		t.Error("servertest: no transaction was awaited by the replica")
	}
}

// SetReadOnly makes the server refuse changes. Open connections stay open.
func (r *Replicated) SetReadOnly(t testing.TB) {
	t.Helper()
	if r.isMySQL() {
		r.Do(t, "SET GLOBAL super_read_only = 1")
		return
	}
	r.Do(t, "SET GLOBAL read_only = 1")
}

// SetWritable undoes SetReadOnly.
func (r *Replicated) SetWritable(t testing.TB) {
	t.Helper()
	r.Do(t, "SET GLOBAL read_only = 0") // super_read_only with it
}

func (r *Replicated) isMySQL() bool { return r.words.source == "source" }

// Promote makes a replica the primary, once it has done all that it got. If it has no replica
// itself, its commits are awaited by none: see NewReplica.
func (r *Replicated) Promote(t testing.TB) {
	t.Helper()
	r.Do(t, "STOP "+r.words.start+" IO_THREAD")
	Eventually(t, "the replica has done all that it got", func() bool {
		s := r.replicaStatus(t)
		if s["Last_SQL_Error"] != "" {
			t.Fatalf("servertest: the replica: %s", s["Last_SQL_Error"])
		}
		return s["Read_Position"] == s["Exec_Position"] && s["Read_File"] == s["Exec_File"]
	})
	r.Do(t, "STOP "+r.words.start)
	r.Do(t, "RESET "+r.words.start+" ALL")
	r.SetWritable(t)
}

// replicaStatus returns how far the replica is, by names that MariaDB and MySQL share.
func (r *Replicated) replicaStatus(t testing.TB) map[string]string {
	t.Helper()
	rows := query(t, r.admin, r.words.status)
	if len(rows) != 1 {
		t.Fatalf("servertest: a replica of %d servers", len(rows))
	}
	word := map[string]string{
		"Last_SQL_Error":   "Last_SQL_Error",
		"Slave_IO_Running": "IO_Running", "Replica_IO_Running": "IO_Running",
		"Read_Master_Log_Pos": "Read_Position", "Exec_Master_Log_Pos": "Exec_Position", "Master_Log_File": "Read_File", "Relay_Master_Log_File": "Exec_File",
		"Read_Source_Log_Pos": "Read_Position", "Exec_Source_Log_Pos": "Exec_Position", "Source_Log_File": "Read_File", "Relay_Source_Log_File": "Exec_File",
	}
	status := make(map[string]string)
	for name, value := range rows[0] {
		if as := word[name]; as != "" {
			status[as] = value
		}
	}
	return status
}
