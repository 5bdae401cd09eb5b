package mysql_test

import (
	"database/sql"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestOpenErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, dsn := range []string{
		"", secret, "user:" + secret + "@tcp(host:3306)", "user:" + secret + "@tcp(host:3306)/",
		"user:pass@" + secret + "(host)/db", "user:x@tcp(host:3306)/db?tls=" + secret,
		"user:x@tcp(host:3306)/db?timeout=" + secret, "user:x@tcp(host:3306)/%zz" + secret, "user:x@" + secret + "/db",
	} {
		db, err := mysql.Open(dsn)
		if !errors.Is(err, mysql.ErrDSN) || db != nil {
			t.Errorf("Open(%q) = %v, %v, want ErrDSN", dsn, db, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("Open(%q) contains the password: %v", dsn, err)
		}
	}
}

// A DSN that contradicts is refused by the parameter's name, without the rest of the DSN.
func TestADSNThatContradictsIsRefused(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	refused := map[string]string{ // by query; the word of the error
		"clientFoundRows=false":                 "clientFoundRows",
		"charset=utf8mb4,utf8":                  "charset",
		"strict=":                               "strict",
		"insert_id=":                            "insert_id",
		"AUTOCOMMIT=OFF":                        "autocommit",
		"tls=false&timeout=3s&autocommit=false": "autocommit",
		"autocommit=1&autocommit=0":             "autocommit",
		"autocommit=%zz":                        "autocommit",
		"autocommit=":                           "autocommit",
		"sql_mode=%27STRICT_TRANS_TABLES%27":    "sql_mode",
		"time_zone=%27Europe%2FBerlin%27":       "time_zone",
		"character_set_results=NULL":            "character_set_results",
		"@@session.autocommit=0":                "no plain name",
		"session%20autocommit=0":                "no plain name",
		secret + ".autocommit=0":                "no plain name",
		"=0":                                    "no plain name",
		"wait_timeout=9&" + secret + "%20a=1":   "no plain name",
	}
	for name := range strings.FieldsSeq(`interpolateParams clientFoundRows multiStatements rejectReadOnly charset collation strict
		autocommit completion_type sql_mode transaction_isolation tx_isolation transaction_read_only tx_read_only time_zone timestamp
		insert_id sql_select_limit max_join_size sql_big_selects sql_safe_updates sql_auto_is_null sql_buffer_result
		foreign_key_checks unique_checks max_sort_length character_set_client character_set_connection character_set_results
		collation_connection query_cache_type system_versioning_asof use_secondary_engine wsrep_dirty_reads`) {
		refused[name+"=7"] = name
	}
	for query, word := range refused {
		_, err := mysql.Open("user:" + secret + "@tcp(host:3306)/db?" + query)
		if !errors.Is(err, mysql.ErrDSN) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want ErrDSN and %q", query, err, word)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "host") {
			t.Errorf("%s: the error quotes the DSN: %v", query, err)
		}
	}
}

// TestADSNMayRepeatAndChoose: a parameter may repeat a fixed value, and choose a free value.
func TestADSNMayRepeatAndChoose(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	for query, value := range map[string]string{ // each is read from a connection
		"interpolateParams=1&clientFoundRows=TRUE&multiStatements=0&charset=utf8mb4&collation=utf8mb4_bin":        "@@collation_connection='utf8mb4_bin'",
		"parseTime=true&loc=Local&readTimeout=30s&writeTimeout=30s&maxAllowedPacket=0&checkConnLiveness=false":    "1",
		"autocommit=ON&completion_type=%27NO_CHAIN%27&tx_isolation=%27read-committed%27&transaction_read_only=0":  "@@autocommit=1",
		"transaction_isolation=%27READ-COMMITTED%27&use_secondary_engine=OFF&query_cache_type=0&tx_read_only=off": "@@autocommit=1",
		"Sql_Mode=%27STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION%27&time_zone=%27%2B00:00%27":                      "@@time_zone='+00:00'",
		"innodb_lock_wait_timeout=7&wait_timeout=77&lock_wait_timeout=8":                                          "@@innodb_lock_wait_timeout + @@wait_timeout + @@lock_wait_timeout = 92",
		"autocommit": "@@autocommit=1", // no value: the driver passes over it
	} {
		if got := oneValue(t, openWith(t, dsn, query), value); got != "1" {
			t.Errorf("%s: %s is %s", query, value, got)
		}
	}
	if err := openWith(t, dsn, "no_such_variable=1").PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no_such_variable") {
		t.Errorf("a variable that the server does not know: %v", err)
	}
}

// TestOpenInsists on parameters that the driver sets otherwise: an UPDATE counts the rows that it matched, no statement
// is prepared, and a text is one statement.
func TestOpenInsists(t *testing.T) {
	t.Parallel()
	db := openWith(t, strings.Replace(servertest.MySQLDSN(t), "interpolateParams=true", "", 1), "", mysql.WithMaxOpen(1))
	ctx, name := t.Context(), "☀ sun"
	for _, statement := range []string{"INSERT INTO users (username, id) VALUES (?, ?)", "UPDATE users SET username = ? WHERE id = ?"} {
		if n, err := mysql.Affected(db.ExecContext(ctx, statement, name, member.ID(1))); err != nil || n != 1 {
			t.Errorf("%s counts %d rows, %v", statement, n, err)
		}
	}
	if got := oneValue(t, db, "CONCAT(username, CHAR_LENGTH(username)) FROM users"); got != name+"5" {
		t.Errorf("the name is %q", got)
	}
	if prepared := servertest.SessionStatus(t, db, "Com_stmt_prepare"); prepared != 0 || db.Stats().MaxOpenConnections != 1 {
		t.Errorf("%d statements were prepared, on up to %d connections", prepared, db.Stats().MaxOpenConnections)
	}
	if _, err := db.ExecContext(ctx, "DO 1; DO 2"); err == nil {
		t.Error("two statements in one were accepted")
	}
}

// TestAnAbandonedTransactionEnds: a process that stops in the middle of a transaction
// holds its locks no longer than the server waits for the next statement.
func TestAnAbandonedTransactionEnds(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	for wait, query := range map[string]string{"30": "", "7": "wait_timeout=7"} {
		if got := oneValue(t, openWith(t, dsn, query), "@@session.wait_timeout"); got != wait {
			t.Errorf("with %q, the server waits %s s, want %s", query, got, wait)
		}
	}
	stopped, other := openWith(t, dsn, ""), openWith(t, dsn, "innodb_lock_wait_timeout=20")
	tx, err := stopped.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"INSERT INTO users (id) VALUES (1)", "SET SESSION wait_timeout = 1"} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.ExecContext(t.Context(), "INSERT INTO users (id) VALUES (1)"); err != nil {
		t.Errorf("the row of an abandoned transaction is not free: %v", err)
	}
	if err := mysql.Translate(t.Context(), "commit", tx.Commit()); !errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("committing an abandoned transaction: %v, want ErrUnavailable", err)
	}
}

// A server greets, and the connection breaks before the answer is sent, as when it is killed at that moment.
func TestAHandshakeThatBreaksIsAnOutage(t *testing.T) {
	t.Parallel()
	const greeting = "\x0a8.0.0\x00" + "\x01\x00\x00\x00" + "12345678\x00" + "\xff\xf7\x21\x02\x00\xff\x81\x15" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "123456789012\x00" + "mysql_native_password\x00"
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int32
	var accepting sync.WaitGroup
	t.Cleanup(accepting.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	accepting.Go(func() {
		for {
			client, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			accepted.Add(1)
			_ = client.CloseRead() // before the greeting, so that no answer can be sent
			_, _ = client.Write(append([]byte{byte(len(greeting)), 0, 0, 0}, greeting...))
			_ = client.Close()
		}
	})
	db := openWith(t, "root@unix("+listener.Addr().String()+")/site", "")
	if err := mysql.Translate(t.Context(), "ping", db.PingContext(t.Context())); !errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "during the handshake") {
		t.Errorf("a handshake that breaks: %v, want ErrUnavailable", err)
	}
	if accepted.Load() == 0 {
		t.Error("nothing was accepted")
	}
}

// openWith opens the database of a DSN with more parameters.
func openWith(t *testing.T, dsn, query string, opts ...func(*sql.DB)) *sql.DB {
	t.Helper()
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	db, err := mysql.Open(dsn+separator+query, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestEveryConnectionSetsItsSessionUp: on a server whose defaults all differ, as a plain connection shows,
// also after the connection was used.
func TestEveryConnectionSetsItsSessionUp(t *testing.T) {
	t.Parallel()
	dsn := servertest.HostileMySQL(t)
	plain, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	ours := openWith(t, dsn, "", mysql.WithMaxOpen(1))
	want := "autocommit=1 completion_type=NO_CHAIN sql_mode=STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION sql_select_limit=18446744073709551615" +
		" sql_big_selects=1 sql_safe_updates=0 sql_auto_is_null=0 sql_buffer_result=0 foreign_key_checks=1 unique_checks=1 max_sort_length=1024" +
		" time_zone=+00:00 character_set_client=utf8mb4 character_set_connection=utf8mb4 character_set_results=utf8mb4" +
		" collation_connection=utf8mb4_bin innodb_lock_wait_timeout=5"
	if strings.Contains(oneValue(t, plain, "VERSION()"), "MariaDB") {
		want += " tx_isolation=READ-COMMITTED tx_read_only=0 query_cache_type=OFF system_versioning_asof=DEFAULT"
	} else {
		want += " transaction_isolation=READ-COMMITTED transaction_read_only=0 use_secondary_engine=OFF"
	}
	for _, when := range []string{"new", "used"} {
		for assignment := range strings.FieldsSeq(want) {
			name, want, _ := strings.Cut(assignment, "=")
			if got := oneValue(t, ours, "@@session."+name); got != want {
				t.Errorf("%s connection: %s is %s, want %s", when, name, got, want)
			}
			if got := oneValue(t, plain, "@@session."+name); got == want {
				t.Errorf("the server's own %s is %s, too: the test is blind", name, got)
			}
		}
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			tx, err := ours.BeginTx(t.Context(), &sql.TxOptions{Isolation: level, ReadOnly: level == sql.LevelRepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := oneValue(t, ours, "NOW() > '2020-01-01'"); got != "1" {
		t.Errorf("the clock is fixed at %s", oneValue(t, ours, "NOW()"))
	}
}

func oneValue(t *testing.T, db *sql.DB, expression string) (got string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT "+expression).Scan(&got); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return got
}

// TestNoDefaultOfTheServerShowsWhatIsHidden: under each default by itself a
// connection that has read before sees all that was committed since, and nothing else.
func TestNoDefaultOfTheServerShowsWhatIsHidden(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	admin, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	admin.SetMaxOpenConns(1) // the defaults count for later connections
	do := func(statements ...string) {
		t.Helper()
		for _, text := range statements {
			if _, err := admin.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	// init_connect does not run for a user with all rights.
	do("CREATE USER site@localhost", "GRANT ALL ON "+servertest.Database+".* TO site@localhost")
	_, address, _ := strings.Cut(server.DSN(servertest.Database), "@")
	for _, test := range []struct{ hostile, usual string }{
		{"autocommit = 0", "autocommit = 1"},
		{"init_connect = 'BEGIN'", "init_connect = ''"},
		{"completion_type = 1", "completion_type = 0"},
		{"TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "TRANSACTION ISOLATION LEVEL REPEATABLE READ"},
		{"TRANSACTION ISOLATION LEVEL SERIALIZABLE", "TRANSACTION ISOLATION LEVEL REPEATABLE READ"},
	} {
		do("SET GLOBAL " + test.hostile)
		t.Run(test.hostile, func(t *testing.T) { checkHiding(t, "site@"+address) })
		do("SET GLOBAL " + test.usual)
	}
}

func checkHiding(t *testing.T, dsn string) {
	t.Helper()
	reading, writing := openWith(t, dsn, "", mysql.WithMaxOpen(1)), openWith(t, dsn, "")
	store := contacts.NewMySQL(reading)
	for _, step := range []struct {
		when       string
		statements []string
		open       bool // the transaction while the photo is looked for; then it is rolled back
		want       bool
	}{
		{"at first", []string{
			"DELETE FROM photos", "DELETE FROM contacts", "DELETE FROM users",
			"INSERT INTO users (id, last_upload) VALUES (1, NULL), (2, 100)",
			"INSERT INTO contacts (user_id, contact_id) VALUES (1, 2)",
			"INSERT INTO photos (owner_id, visibility, date_upload) VALUES (2, 'public', 100)",
		}, false, true},
		{"after it was made private", []string{"UPDATE photos SET visibility = 'private'"}, false, false},
		{"while a transaction makes it public", []string{"UPDATE photos SET visibility = 'public'"}, true, false},
		{"after that was rolled back", nil, false, false},
		{"after it was made public", []string{"UPDATE photos SET visibility = 'public'"}, false, true},
	} {
		tx, err := writing.BeginTx(t.Context(), nil)
		for _, text := range step.statements {
			if err == nil {
				_, err = tx.ExecContext(t.Context(), text)
			}
		}
		if err == nil && !step.open {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatalf("%s: %v", step.when, err)
		}
		album, err := store.Look(t.Context(), contacts.Viewer{ID: 1}, 2, 10, 0)
		if got := len(album.Photos) > 0; err != nil || got != step.want {
			t.Errorf("%s: a read shows the photo: %v, %v, want %v", step.when, got, err, step.want)
		}
		walked, err := store.Walk(t.Context(), contacts.Viewer{ID: 1}, 10)
		if got := len(walked.Photos) > 0; err != nil || got != step.want {
			t.Errorf("%s: a walk shows the photo: %v, %v, want %v", step.when, got, err, step.want)
		}
		if step.open {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A user that must show a certificate shows that of client_cert.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	ca := servertest.NewAuthority(t)
	file := ca.Issue(t, "127.0.0.1")
	server := servertest.OwnMySQL(t, "--ssl-ca="+ca.File, "--ssl-cert="+file, "--ssl-key="+file)
	admin, err := sql.Open("mysql", server.DSN(servertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	for _, statement := range []string{"CREATE USER shows@localhost REQUIRE X509", "GRANT ALL ON *.* TO shows@localhost"} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := driver.ParseDSN(server.DSN(servertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	dsn := "shows@unix(" + cfg.Addr + ")/" + servertest.Database + "?tls=skip-verify"
	for parameter, want := range map[string]bool{"?": false, "?client_cert=" + file + "&": true} {
		db, err := mysql.Open(strings.Replace(dsn, "?", parameter, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := db.PingContext(t.Context()); (err == nil) != want {
			t.Errorf("%q: %v", parameter, err)
		}
		_ = db.Close()
	}
	for parameters, want := range map[string]string{"?client_cert=" + file: "needs tls=true", "?tls=true&client_cert=" + ca.File + "x": "PEM"} {
		if _, err := mysql.Open("u@tcp(host)/db" + parameters); !errors.Is(err, mysql.ErrDSN) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", parameters, err)
		}
	}
}
