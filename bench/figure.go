// SPDX-License-Identifier: MIT

package main

import "fmt"

// figure is a kind of measured value, such as the time of a decision.
type figure struct {
	name   string
	format func(float64) string
	better direction
}

// direction says which of two values of a figure is better.
type direction int

const (
	less direction = iota
	more
	neither
)

// plainText keeps about three significant digits.
func plainText(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func nsText(v float64) string { return plainText(v) + " ns" }

func perSecondText(v float64) string { return plainText(v/1000) + " k/s" }

func secondsText(v float64) string {
	if v < 0.001 {
		return plainText(v*1e6) + " µs"
	}
	if v < 1 {
		return plainText(v*1e3) + " ms"
	}
	return plainText(v) + " s"
}

func percentText(v float64) string { return plainText(v) + " %" }

func ratioText(v float64) string {
	if v == 0 {
		return ""
	}
	return plainText(v) + " x"
}
