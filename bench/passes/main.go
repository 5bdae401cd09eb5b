// Command passes prints the functions of the read, the index and its nodes that a single proven
// read passes: a count of the functions that a reader has to hold in mind. It is built with
// coverage:
//
//	p=github.com/activityd/activityd; go run -cover -covermode=atomic -coverpkg=$p/bench/passes,$p/internal/recent,$p/internal/index,$p/internal/redisnodes ./passes
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/coverage"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/localserver"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "passes:", err)
		os.Exit(1)
	}
}

// noHints drops the hints.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

func run(ctx context.Context) (err error) {
	server, err := localserver.StartRedis(ctx)
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr()})
	defer func() { err = errors.Join(err, client.Close(), server.Close()) }()
	site := contactstest.NewMemory() // has the answers of MySQL
	reader := recent.NewReader(index.New(client, index.Options{Settings: index.Settings{Min: 10, Max: 12}}), site, noHints{}, recent.Options{})
	site.AddMember(1, "")
	for id := member.ID(2); id <= 3; id++ {
		site.AddMember(id, "")
		site.SetContact(1, id, false, false)
		site.AddPhoto(uint64(id), id, "", contacts.Public, uint64(id)*100)
	}
	read := func() (recent.Answer, error) { return reader.Read(ctx, contacts.Viewer{ID: 1}, 10) }
	if _, err := read(); err != nil { // it connects; sets of before would be believed to be of another server
		return err
	}
	for id := member.ID(2); id <= 3; id++ {
		if err := client.ZAdd(ctx, index.UserKey(1), redis.Z{Score: float64(id) * 100, Member: id.String()}).Err(); err != nil {
			return err
		}
	}
	for range 2 {
		if err := coverage.ClearCounters(); err != nil {
			return err
		}
		if a, err := read(); err != nil || a.Trace.Proof != recent.ByNext {
			return fmt.Errorf("the answer %+v: %w", a, err)
		}
	}
	return report(ctx)
}

// report prints the functions that ran.
func report(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "passes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir)); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "covdata", "func", "-i="+dir).Output()
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] != "0.0%" && strings.Contains(f[0], "/internal/") {
			n++
			fmt.Println(f[0], f[1])
		}
	}
	fmt.Println(n, "functions")
	return nil
}
