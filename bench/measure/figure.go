// SPDX-License-Identifier: MIT

package measure

import "fmt"

// Figure is a kind of measured value, such as the time of a decision.
type Figure struct {
	Name   string
	Format func(float64) string
	Better Direction
}

// Direction says which of two values of a figure is better.
type Direction int

// The directions.
const (
	Less Direction = iota
	More
	Neither
)

// PlainText keeps about three significant digits.
func PlainText(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// NsText writes nanoseconds.
func NsText(v float64) string { return PlainText(v) + " ns" }

// PerSecondText writes a rate in thousands.
func PerSecondText(v float64) string { return PlainText(v/1000) + " k/s" }

// SecondsText writes seconds in a unit that suits them.
func SecondsText(v float64) string {
	if v < 0.001 {
		return PlainText(v*1e6) + " µs"
	}
	if v < 1 {
		return PlainText(v*1e3) + " ms"
	}
	return PlainText(v) + " s"
}

// PercentText writes per cent.
func PercentText(v float64) string { return PlainText(v) + " %" }

// RatioText writes a ratio, and nothing if there is none.
func RatioText(v float64) string {
	if v == 0 {
		return ""
	}
	return PlainText(v) + " x"
}

// FewText ignores fractions, such as the few allocations of the measurement itself.
func FewText(v float64) string {
	if v < 0.01 {
		return "0"
	}
	return PlainText(v)
}
