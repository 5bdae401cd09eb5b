package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of "go test -json"; see "go doc test2json".
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"` // empty in the events of a build
	Test    string `json:"Test"`    // empty: of the package as a whole
	Output  string `json:"Output"`
}

// summary collects events. It is for a single goroutine.
type summary struct {
	out     io.Writer
	running map[string]*pkg

	passed, failed int
	skipped        []string
	printErr       error
}

// pkg is a package that is being tested.
type pkg struct {
	order  []string          // of tests, by their first output
	output map[string]string // of tests that have not passed, by test; "": the package's own
	failed int               // tests so far
}

// read takes events until r ends. It prints a line that is no event: go test writes plain
// text if it cannot start.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		s.take(line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
	}
}

func (s *summary) take(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		s.print(string(line))
		return
	}
	switch {
	case e.Action == "build-output":
		s.print(e.Output)
	case e.Package == "":
		// Other events of a build: its package fails, too.
	case e.Action == "output":
		s.keep(e)
	case e.Test == "":
		s.endPackage(e)
	default:
		s.endTest(e)
	}
}

// keep keeps the output of a test until the test ends.
func (s *summary) keep(e event) {
	if strings.HasPrefix(e.Output, "=== ") {
		return // RUN, PAUSE and the like: noise
	}
	p := s.pkg(e.Package)
	if _, known := p.output[e.Test]; !known && e.Test != "" {
		p.order = append(p.order, e.Test)
	}
	p.output[e.Test] += e.Output
}

func (s *summary) pkg(name string) *pkg {
	if s.running[name] == nil {
		s.running[name] = &pkg{output: map[string]string{}}
	}
	return s.running[name]
}

// endTest counts a test. It prints the output of a skipped test, and drops the output of a test
// that passed; endPackage prints the output of a failed test.
func (s *summary) endTest(e event) {
	p := s.pkg(e.Package)
	switch e.Action {
	case "pass":
		s.passed++
		p.output[e.Test] = ""
	case "fail":
		s.failed++
		p.failed++
	case "skip":
		name := e.Package + "." + e.Test
		s.skipped = append(s.skipped, name)
		s.print("SKIP\t" + name + "\n" + p.output[e.Test])
		p.output[e.Test] = ""
	}
}

// endPackage prints the package's closing line and, if it failed, the output of the
// tests that failed or never ended.
func (s *summary) endPackage(e event) {
	p := s.pkg(e.Package)
	switch e.Action {
	case "pass", "skip": // skip: it has no tests
		for line := range strings.Lines(p.output[""]) {
			if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
				s.print(line)
			}
		}
	case "fail":
		if p.failed == 0 {
			s.failed++ // it did not compile, or broke outside its tests
		}
		for _, test := range append(p.order, "") { // the package's own output is last
			s.print(p.output[test])
		}
	default:
		return // start
	}
	delete(s.running, e.Package)
}

// finish prints the last line and returns the problems of the whole run.
func (s *summary) finish() []string {
	var problems []string
	for name := range s.running {
		problems = append(problems, name+" did not end")
	}
	slices.Sort(problems)
	for _, name := range s.skipped {
		problems = append(problems, name+" was skipped: every test must run")
	}
	if s.passed == 0 {
		problems = append(problems, "no test passed: nothing was tested")
	}
	if s.failed > 0 {
		problems = append(problems, "tests failed")
	}
	s.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skipped)))
	if s.printErr != nil {
		problems = append(problems, "the report could not be written: "+s.printErr.Error())
	}
	return problems
}

// print writes text, and keeps the first error for finish to report.
func (s *summary) print(text string) {
	if _, err := io.WriteString(s.out, text); err != nil && s.printErr == nil {
		s.printErr = err
	}
}
