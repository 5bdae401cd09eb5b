// Command testsummary runs "go test" and prints the line of each package, the output of tests
// that failed, the tests that were skipped, and at the end the line
//
//	N passed, N failed, N skipped
//
// that counts tests and subtests. It fails when a test failed. It also fails when a test was
// skipped or when no test ran, although "go test" succeeds then.
//
// Usage:
//
//	testsummary arguments of go test
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	// go test gets a ^C as well, being in the same process group; this process must
	// outlive it to report.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 0 when all tests ran and passed, otherwise 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := &summary{out: stdout, output: make(map[event]string), hasFailed: make(map[string]bool)}
	failed := goTest(ctx, args, s, stderr)
	fmt.Fprintf(stdout, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	for problem, is := range map[string]bool{
		fmt.Sprintf("go test: %v", failed):        failed != nil,
		"a test was skipped: every test must run": s.skipped > 0,
		"no test passed: nothing was tested":      s.passed == 0,
	} {
		if is {
			fmt.Fprintf(stderr, "testsummary: %s\n", problem)
		}
	}
	if failed != nil || s.skipped > 0 || s.passed == 0 {
		return 1
	}
	return 0
}

// goTest runs "go test -json" and passes its events to s. It fails if go test does.
//
// As many packages run at a time as there are processors, and twice as many tests of a package, unless args say
// otherwise: most tests wait for servers. With more packages, tests wait longer, as their servers share the machine.
// The packages share a folder,
// in which the first server of MySQL leaves its new data for the next servers. They collect
// garbage less often.
func goTest(ctx context.Context, args []string, s *summary, stderr io.Writer) error {
	data, err := os.MkdirTemp("", "activityd-data-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	packages, tests := "-p="+strconv.Itoa(runtime.NumCPU()), "-parallel="+strconv.Itoa(2*runtime.NumCPU())
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", packages, tests}, args...)...)
	cmd.Env = append(os.Environ(), "ACTIVITYD_TEST_DATA="+data, "GOGC="+cmp.Or(os.Getenv("GOGC"), "400"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	for err == nil {
		var line []byte
		line, err = lines.ReadBytes('\n')
		s.take(line)
	}
	return cmd.Wait()
}

// event is a line of "go test -json"; see "go doc test2json".
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"` // empty in the events of a build
	Test    string `json:"Test"`    // empty: of the package as a whole
	Output  string `json:"Output"`
}

// summary counts tests, and keeps the output of tests that have not passed.
type summary struct {
	out                     io.Writer
	output                  map[event]string // by package and test
	hasFailed               map[string]bool  // by package: one of its tests
	passed, failed, skipped int
}

// take takes an event. It prints a line that is none: go test writes plain text if it cannot start.
func (s *summary) take(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		s.print(string(line))
		return
	}
	key := event{Package: e.Package, Test: e.Test}
	switch {
	case e.Action == "build-output":
		s.print(e.Output)
	case e.Action == "output" && !strings.HasPrefix(e.Output, "=== "): // RUN, PAUSE and the like are noise
		s.output[key] += e.Output
	case e.Package == "" || e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		return
	case e.Test == "":
		s.endPackage(e)
	case e.Action == "pass":
		s.passed++
	case e.Action == "fail":
		s.failed++
		s.hasFailed[e.Package] = true
		s.print(s.output[key])
	case e.Action == "skip":
		s.skipped++
		s.print("SKIP\t" + e.Package + "." + e.Test + "\n" + s.output[key])
	}
	if e.Action != "output" {
		delete(s.output, key)
	}
}

// endPackage prints the closing line of a package; if it failed, also what broke outside its tests, and the output of
// tests that did not end.
func (s *summary) endPackage(e event) {
	if e.Action == "fail" && !s.hasFailed[e.Package] {
		s.failed++
	}
	for key, text := range s.output {
		for line := range strings.Lines(text) {
			if key.Package == e.Package && (e.Action == "fail" || key.Test == "" && (strings.HasPrefix(line, "ok ") || line[0] == '?')) {
				s.print(line)
			}
		}
	}
	maps.DeleteFunc(s.output, func(key event, _ string) bool { return key.Package == e.Package })
}

func (s *summary) print(text string) { _, _ = io.WriteString(s.out, text) }
