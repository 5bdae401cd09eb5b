package main

import (
	"bytes"
	"cmp"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// deviceLine is a line of a device of a member, which has address number i.
func deviceLine(id, i int) string {
	return fmt.Sprintf(`{"user_id":"%d","platform":"fcm","token":"t:%d","language":"de","registered_at":%d}`, id, i, 1_700_000_000+i)
}

func withMembers(t *testing.T, n int) (dsn string, db *sql.DB) {
	t.Helper()
	dsn = servertest.MySQLDSN(t)
	db = queueOf(t, dsn)
	for first := 1; first <= n; first += 1000 {
		var rows []string
		for id := first; id < first+1000 && id <= n; id++ {
			rows = append(rows, fmt.Sprintf("(%d, 'u')", id))
		}
		_, err := db.ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES "+strings.Join(rows, ","))
		must(t, err)
	}
	return dsn, db
}

// Lines of each platform are registered as by a request, and those that are wrong are reported and stop nothing.
func TestPushImport(t *testing.T) {
	t.Parallel()
	dsn, db := withMembers(t, 9)
	p := startPushServices(t)
	browser, err := p.web.Subscribe(p.key)
	must(t, err)
	lines := []string{
		deviceLine(1, 1),
		"",
		`{"user_id":2,"platform":"apns","token":"` + apnsToken + `","environment":"sandbox","registered_at":1700000000}`,
		`{"user_id":2,"platform":"webpush","subscription":` + string(browser.JSON()) + `,"language":"pt-BR"}`,
		`{"user_id":3,"platform":"webpush","subscription":` + strings.Replace(string(browser.JSON()), "127.0.0.1", "10.9.8.7", 1) + `}`,
		`not JSON`,
		`[]`,
		`{"user_id":"3","platform":"fcm","token":"SECRET","colour":"red"}`,
		`{"platform":"fcm","token":"SECRET SECRET"}`,
		`{"user_id":3,"platform":"apns","token":"SECRET","environment":"production"}`,
		`{"user_id":999,"platform":"fcm","token":"SECRET"}`,
		`{"user_id":3,"platform":"fcm","token":"SECRET","registered_at":99999999999}`,
		`{"user_id":3,"platform":"fcm","token":"` + strings.Repeat("x", 2*maxLine) + `"}`,
		deviceLine(4, 2),
		deviceLine(5, 2), // registered at the same time: the first one counts
	}
	want := map[string]string{
		"line 5":  "subscription: ",
		"line 6":  "not JSON",
		"line 7":  "want an object",
		"line 8":  "colour: unknown field",
		"line 9":  "user_id: is missing",
		"line 10": "token: ",
		"line 11": "user_id: there is no member 999",
		"line 12": "registered_at: ",
		"line 13": "has more than 65536 bytes",
	}
	path := filepath.Join(t.TempDir(), "devices.ndjson")
	must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	t.Run("file", func(t *testing.T) {
		root, out, errs := []string{"push", "import", path, "--mysql-dsn=" + dsn}, &notes{}, &notes{}
		cmd := newRoot([]string{"ACTIVITYD_WEBPUSH_ALLOW=127.0.0.1/32"}, out, errs)
		cmd.SetArgs(root)
		err := cmd.ExecuteContext(t.Context())
		if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "9 lines were bad; devices added: 4, replaced: 0, known: 1,") {
			t.Errorf("%v, %s", err, out)
		}
		said := errs.String()
		for line, reason := range want {
			found := false
			for text := range strings.Lines(said) {
				found = found || strings.HasPrefix(text, line+": ") && strings.Contains(text, reason)
			}
			if !found {
				t.Errorf("%s is not said to be bad for %q", line, reason)
			}
		}
		if n := strings.Count(said, "line "); n != len(want) || strings.Contains(said, "SECRET") {
			t.Errorf("said:\n%s", said)
		}
	})
	if n := number(t, db, "SELECT COUNT(*) FROM push_devices WHERE (member_id, platform, language) IN ((1,'fcm','de'),(2,'apns',''),(2,'webpush','pt-BR'),(4,'fcm','de'))"); n != 4 {
		t.Errorf("%d of the devices are there", n)
	}
	for from, args := range map[string]string{"file": path, "input": "-"} {
		good := filepath.Join(t.TempDir(), "good")
		must(t, os.WriteFile(good, []byte(deviceLine(1, 1)+"\n"+deviceLine(7, 7)), 0o600))
		in, err := os.Open(good)
		must(t, err)
		if args != "-" {
			args = good
		}
		out, errs, err := fed(t.Context(), in, "push", "import", args, "--mysql-dsn="+dsn, "--progress=1ns")
		if err != nil || !strings.HasPrefix(out.String(), "devices added: ") || !strings.Contains(errs.String(), "2 lines, ") {
			t.Errorf("from a %s: %v: %s%s", from, err, out, errs)
		}
		must(t, in.Close())
	}
	if _, _, err := fed(t.Context(), nil, "push", "import", path+".none", "--mysql-dsn="+dsn); err == nil || !strings.HasPrefix(err.Error(), "FILE: ") {
		t.Errorf("no file: %v", err)
	}
}

// deviceFile returns a file of so many devices of members.
func deviceFile(t *testing.T, members, devices int) (path string) {
	t.Helper()
	var text bytes.Buffer
	for i := range devices {
		fmt.Fprintln(&text, deviceLine(1+i%members, i))
	}
	path = filepath.Join(t.TempDir(), "devices.ndjson")
	must(t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// A process that is stopped in the middle, perhaps with locks in the database, and goes on when another one has imported
// the same, or waits for it, doubles and loses nothing: each device is added by one of the two.
func TestPushImportGoesOnAfterAStop(t *testing.T) {
	t.Parallel()
	const members, devices = 2000, 10_000
	dsn, db := withMembers(t, members)
	path := deviceFile(t, members, devices)
	whole, err := os.ReadFile(path)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	var said [2]bytes.Buffer
	start := func(i int, file string) (*exec.Cmd, io.WriteCloser) {
		c := exec.CommandContext(t.Context(), self, "push", "import", file, "--mysql-dsn="+dsn)
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), asProgram+"=1"), &said[i], t.Output()
		in, err := c.StdinPipe()
		must(t, err)
		must(t, c.Start())
		return c, in
	}
	first, in := start(0, "-")
	fed := make(chan error, 1)
	rest := make(chan []byte)
	go func() {
		var err error
		for part := range rest {
			if err == nil {
				_, err = in.Write(part)
			}
		}
		fed <- cmp.Or(err, in.Close())
	}()
	rest <- whole[:len(whole)*9/10] // so that it cannot end before
	eventually(t, "some devices are there", func() bool { return number(t, db, "SELECT COUNT(*) FROM push_devices") >= 1000 })
	must(t, first.Process.Signal(syscall.SIGSTOP))
	before := number(t, db, "SELECT COUNT(*) FROM push_devices")
	second, _ := start(1, path)
	ended := make(chan error, 1)
	go func() { ended <- second.Wait() }()
	eventually(t, "the second has ended, or waits for what the first has locked", func() bool {
		var waits bool // MySQL cannot list a statement that has binary values: it is asked again then
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) > 0 FROM information_schema.innodb_trx t JOIN information_schema.processlist p"+
			" ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT'").Scan(&waits)
		return len(ended) > 0 || err == nil && waits
	})
	must(t, first.Process.Signal(syscall.SIGCONT))
	rest <- whole[len(whole)*9/10:]
	close(rest)
	must(t, <-fed)
	must(t, first.Wait())
	must(t, <-ended)
	sum := 0
	for i := range said {
		var added, known int
		if _, err := fmt.Sscanf(said[i].String(), "devices added: %d, replaced: 0, known: %d,", &added, &known); err != nil || added+known != devices {
			t.Errorf("process %d said %q, %v", i+1, said[i].String(), err)
		}
		sum += added
	}
	if n := number(t, db, "SELECT COUNT(*) FROM push_devices"); n != devices || sum != devices || before == devices {
		t.Errorf("%d devices, %d were added, want %d; there were %d at the stop", n, sum, devices, before)
	}
	if n := number(t, db, "SELECT COUNT(*) FROM push_devices WHERE"+
		fmt.Sprintf(" member_id <> 1 + SUBSTR(JSON_UNQUOTE(JSON_EXTRACT(address, '$.token')), 3) %% %d", members)); n != 0 {
		t.Errorf("%d devices are of other members", n)
	}
}

// A process that is killed in the middle loses nothing: when the same is imported again, each
// address is one device of the member that registered it last.
func TestPushImportGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	const members, devices = 2000, 6000
	dsn, db := withMembers(t, members)
	path := deviceFile(t, members, devices)
	self, err := os.Executable()
	must(t, err)
	for kill := 1; kill <= 3; kill++ {
		c := exec.CommandContext(t.Context(), self, "push", "import", "-", "--mysql-dsn="+dsn)
		c.Env = append(os.Environ(), asProgram+"=1")
		in, err := c.StdinPipe()
		must(t, err)
		must(t, c.Start())
		whole, err := os.ReadFile(path)
		must(t, err)
		part := whole[:len(whole)*kill/4]
		go func() { _, _ = in.Write(part) }() // the pipe ends with the process
		before := number(t, db, "SELECT COUNT(*) FROM push_devices")
		eventually(t, "more devices are there", func() bool { return number(t, db, "SELECT COUNT(*) FROM push_devices") > before })
		must(t, c.Process.Kill())
		_ = c.Wait()
		_, err = db.ExecContext(t.Context(), "UPDATE push_devices SET member_id = 1 + member_id % ?, registered_at = ? WHERE id % 97 = 1 AND registered_at < ?",
			members, time.Now().UnixMilli(), time.Now().Add(-time.Hour).UnixMilli()) // its app registered it for another member
		must(t, err)
	}
	moved := number(t, db, "SELECT COUNT(*) FROM push_devices WHERE registered_at > 1790000000000")
	out := succeed(t, "push", "import", path, "--mysql-dsn="+dsn)
	var added, known int
	if _, err := fmt.Sscanf(out, "devices added: %d, replaced: 0, known: %d,", &added, &known); err != nil || added+known != devices || known == 0 || added == 0 {
		t.Errorf("said %q, %v", out, err)
	}
	if n := number(t, db, "SELECT COUNT(*) FROM push_devices"); n != devices {
		t.Errorf("%d devices, want %d", n, devices)
	}
	if n := number(t, db, "SELECT COUNT(*) FROM push_devices WHERE registered_at > 1790000000000"); n != moved || n == 0 {
		t.Errorf("%d devices that were registered since stayed, want %d", n, moved)
	}
	if n := number(t, db, "SELECT COUNT(*) FROM push_devices WHERE registered_at < 1790000000000 AND"+
		fmt.Sprintf(" member_id <> 1 + SUBSTR(JSON_UNQUOTE(JSON_EXTRACT(address, '$.token')), 3) %% %d", members)); n != 0 {
		t.Errorf("%d devices are of other members", n)
	}
	if again := succeed(t, "push", "import", path, "--mysql-dsn="+dsn); !strings.HasPrefix(again, fmt.Sprintf("devices added: 0, replaced: 0, known: %d,", devices)) {
		t.Errorf("the last time it says %q", again)
	}
}
