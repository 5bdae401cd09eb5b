package main

import (
	"os"
	"testing"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{nil, "0"},
		{[]float64{3}, "3.00"},
		{[]float64{30, 10, 20}, "too noisy (10.0..30.0)"},
		{[]float64{10, 20}, "15.0 (10.0..20.0)"},
		{[]float64{1234.5, 1999, 1500, 1111}, "1370 (1110..2000)"},
	} {
		if got := spreadOf(test.values...).String(); got != test.want {
			t.Errorf("%v: %q, want %q", test.values, got, test.want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	values := make([]float64, 101)
	for i := range values {
		values[i] = float64(100 - i)
	}
	for q, want := range map[float64]float64{0: 0, 0.5: 50, 0.9: 90, 0.995: 99.5, 1: 100} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 0.1234: "0.123", 1.5: "1.50", 99.96: "100.0", 1234: "1230", 99999: "100000"} {
		if got := number(x); got != want {
			t.Errorf("%v: %q, want %q", x, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SELECT\n\t 1 FROM t WHERE id IN (1,2,3)":                              "SELECT 1 FROM t WHERE id IN (1, …)",
		"DELETE FROM t WHERE k IN ('a','b','c') AND n = 5":                     "DELETE FROM t WHERE k IN ('a', …) AND n = 5",
		"INSERT INTO t (a, b) VALUES ('x',1),('y',2)":                          "INSERT INTO t (a, b) VALUES ('x',1), …",
		"UPDATE t SET a = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED) + 5": "UPDATE t SET a = now + 5",
	} {
		if got := shorten(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestProcessTimeGrows(t *testing.T) {
	t.Parallel()
	before, err := processTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for now := before; now < before+2*tick; {
		if now, err = processTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCountdownEndsOnce(t *testing.T) {
	t.Parallel()
	c := newCountdown(3)
	c.done(2)
	select {
	case <-c.zero:
		t.Fatal("ended before all were done")
	default:
	}
	c.done(1)
	c.done(1) // a task may be done twice
	if err := c.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNumbersOfATableAreGrouped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"999":                       "999",
		"1234":                      "1,234",
		"368000 (1000..1234567) /s": "368,000 (1,000..1,234,567) /s",
		"0.0195 (0.00256..12345.6)": "0.0195 (0.00256..12,345.6)",
		"2000ms":                    "2000ms",
	} {
		if got := numeral.ReplaceAllStringFunc(in, grouped); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
