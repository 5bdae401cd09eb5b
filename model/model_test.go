//go:build model

// Package model_test has SPIN search the models of this folder; README.md says what they are.
package model_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// variants are the rules that can be left out of a model: the property that fails first then,
// and further definitions under which it does.
var variants = map[string]map[string][]string{
	"queue.pml": {
		"V_CLAIM_NAMES_ITS_OWN":        {"overtaken"},
		"V_FINISH_WITHOUT_LEASE":       {"two_holders_of_one_task", "-DORDERED=0"},
		"V_KEY_BACK":                   {"duplicate_key"},
		"V_KEY_FREED_BY_A_TIMER":       {"two_holders_of_one_key"},
		"V_KEY_KEPT":                   {"done_by_work_that_began_before"},
		"V_MEND_WITHOUT_LOOKING_AGAIN": {"two_holders_of_one_key"},
		"V_MERGE_STILL_EXPIRES":        {"expired_though_it_must_not"},
		"V_MERGE_WITHOUT_LEASE":        {"waits_for_ever"},
		"V_NEXT_BY_AN_OLD_VIEW":        {"key_held_for_ever"},
		"V_NEXT_OF_BEHIND_ALONE":       {"overtaken"},
		"V_NO_ABSORB_LOCK":             {"done_by_work_that_began_before", "-DMORTAL=0"},
		"V_NO_HELD_KEYS":               {"two_holders_of_one_key"},
		"V_NO_MEND":                    {"key_held_for_ever"},
		"V_SWEEP_WITHOUT_LOCK":         {"two_holders_of_one_task"},
	},
	"guard.pml": {
		"V_ADD_INTO_A_MISSING_SET": {"made_without_a_refill"},
		"V_ADD_KEEPS_GUARD":        {"contact_is_missing"},
		"V_APPLY_IGNORES_TOKEN":    {"contact_is_missing"},
		"V_APPLY_TO_A_LOST_SET":    {"contact_is_missing"},
		"V_CORRECT_WHAT_ROSE":      {"contact_is_missing"},
		"V_CUT_KEEPS_GUARD":        {"score_is_too_low"},
		"V_GT_DROPPED":             {"contact_is_missing"},
		"V_OUTSIDE_DROPPED":        {"contact_is_missing"},
		"V_REFILL_IGNORES_GUARD":   {"score_is_too_low"},
		"V_REMOVE_WHAT_ROSE":       {"contact_is_missing"},
		"V_REMOVE_WITHOUT_REFILL":  {"set_is_too_small", "-DMIN=2", "-DMAX=3"},
	},
}

// TestTheModelsHaveNoErrors requires that a search is exhaustive, comes to all statements, and finds no error.
func TestTheModelsHaveNoErrors(t *testing.T) {
	t.Parallel()
	for file, options := range map[string][]string{
		// Each run of the queue comes to an end, as no state can be reached from itself: SPIN looks for cycles
		// without progress, and no statement of the model is marked as progress. On its way it looks at all assertions.
		"queue.pml": {"-DNP", "-DNOFAIR"},
		"guard.pml": {"-DMIN=2", "-DMAX=3", "-DSAFETY"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			output := search(t, file, options...)
			if !strings.Contains(output, "errors: 0") {
				t.Error(output)
			}
			if flaw := regexp.MustCompile(`(?i)max search depth too small|search not completed|out of memory|hash-compact|bitstate`).FindString(output); flaw != "" {
				t.Errorf("the search was not exhaustive: %s", flaw)
			}
			for _, line := range regexp.MustCompile(`(?m)^\t.*, state \d+, .*$`).FindAllString(output, -1) {
				if !strings.HasSuffix(line, `"-end-"`) {
					t.Error("never reached:", line)
				}
			}
		})
	}
}

// TestEachVariantFails searches for the shortest way to an error.
func TestEachVariantFails(t *testing.T) {
	t.Parallel()
	for file, properties := range variants {
		text, err := os.ReadFile(file)
		if defined := regexp.MustCompile(`\bV_[A-Z_]+`).FindAllString(string(text), -1); err != nil || len(slices.Compact(slices.Sorted(slices.Values(defined)))) != len(properties) {
			t.Errorf("%s has the variants %s, want those of this test: %v", file, defined, err)
		}
		for variant, fails := range properties {
			t.Run(variant, func(t *testing.T) {
				t.Parallel()
				output := search(t, file, slices.Concat([]string{"-D" + variant, "-DSAFETY", "-DBFS"}, fails[1:])...)
				if want := "assertion violated  !(" + fails[0] + ")"; !strings.Contains(output, "errors: 1") || !strings.Contains(output, want) {
					t.Errorf("not found: %s\n%s", want, output)
				}
			})
		}
	}
}

// search searches a model, and returns what SPIN says. SPIN and the compiler of its verifier both have the definitions.
func search(t *testing.T, file string, definitions ...string) string {
	t.Helper()
	folder := t.TempDir()
	run := func(program string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "errors: ") { // pan's code is not 0 where it found an error
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if err := os.CopyFS(folder, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	run("spin", slices.Concat(definitions, []string{"-a", file})...)
	// All steps are of variables that all processes share: there is no order to leave out.
	compile := []string{"-w", "-O2", "-DNOREDUCE", "-DMEMLIM=4000"}
	if slices.Contains(definitions, "-DBFS") { // an error is found soon
		compile[1] = "-O0"
	}
	run(cmp.Or(os.Getenv("CC"), "gcc"), slices.Concat(compile, definitions, []string{"-o", "pan", "pan.c"})...)
	args := []string{"-m10000"} // the steps that a way may have: a search that would need more fails
	if slices.Contains(definitions, "-DNP") {
		args = append(args, "-l")
	}
	output := run("./pan", args...)
	if trail, _ := filepath.Glob(filepath.Join(folder, "*.trail")); len(trail) > 0 && !slices.Contains(definitions, "-DBFS") {
		output += run("./pan", "-r")
	}
	return output
}
