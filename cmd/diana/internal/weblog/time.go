// SPDX-License-Identifier: MIT

package weblog

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The range of times in a log, in microseconds since the Unix epoch.
const (
	earliest = 0
	latest   = 230 * 365 * 86400 * 1_000_000 // about the year 2200
)

// clock reads times. It remembers the last one, because neighbouring lines often have the same.
type clock struct {
	text string
	at   int64
}

// common reads a time such as 10/Oct/2000:13:55:36 -0700.
func (c *clock) common(text string) (int64, bool) {
	if text == c.text && text != "" {
		return c.at, true
	}
	at, ok := commonTime(text)
	if ok {
		c.text, c.at = strings.Clone(text), at // so that its block is not kept in memory
	}
	return at, ok
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

func commonTime(s string) (int64, bool) {
	if len(s) != len("10/Oct/2000:13:55:36 -0700") || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[20] != ' ' {
		return 0, false
	}
	month := strings.Index(months, s[3:6])
	if month%3 != 0 { // or is -1
		return 0, false
	}
	day, ok := digits(s[:2])
	year, ok2 := digits(s[7:11])
	seconds, ok3 := timeOfDay(s[12:20])
	offset, ok4 := zone(s[21:])
	if !ok || !ok2 || !ok3 || !ok4 {
		return 0, false
	}
	return moment(year, month/3+1, day, seconds-offset, 0)
}

// any reads a time in any form that logs use:
//
//   - RFC 3339, also with a space for the T, or without a zone, which means UTC
//   - a number since the Unix epoch
//   - the time of the combined form
func (c *clock) any(s string) (at int64, whole, ok bool) {
	if len(s) > 4 && s[4] == '-' {
		return isoTime(s)
	}
	if len(s) > 2 && s[2] == '/' {
		at, ok = c.common(s)
		return at, true, ok
	}
	return epochTime(s)
}

func isoTime(s string) (at int64, whole, ok bool) {
	if len(s) < len("2006-01-02T15:04:05") || s[7] != '-' || s[10] != 'T' && s[10] != 't' && s[10] != ' ' {
		return 0, false, false
	}
	year, ok := digits(s[:4])
	month, ok2 := digits(s[5:7])
	day, ok3 := digits(s[8:10])
	seconds, ok4 := timeOfDay(s[11:19])
	if !ok || !ok2 || !ok3 || !ok4 {
		return 0, false, false
	}
	s = s[19:]
	micros := 0
	whole = true
	if len(s) > 1 && (s[0] == '.' || s[0] == ',') {
		n := 1
		for ; n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
			if n <= 6 {
				micros = micros*10 + int(s[n]-'0')
			}
		}
		for i := n; i <= 6; i++ {
			micros *= 10
		}
		s, whole = s[n:], n == 1
	}
	if s != "" && s != "Z" && s != "z" {
		offset, ok := zone(strings.TrimPrefix(s, " "))
		if !ok {
			return 0, false, false
		}
		seconds -= offset
	}
	at, ok = moment(year, month, day, seconds, micros)
	return at, whole, ok
}

// epochTime reads a number of seconds, milliseconds, microseconds or nanoseconds. It tells them
// apart by the size of the number.
func epochTime(s string) (at int64, whole, ok bool) {
	integer, fraction, _ := strings.Cut(s, ".")
	if len(integer) > 19 || len(integer) == 0 {
		return 0, false, false
	}
	if strings.ContainsAny(s, "eE") { // such as 1.7e9
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f < 1e11) {
			return 0, false, false
		}
		at = int64(math.Round(f * 1e6))
		return at, at%1_000_000 == 0, at < latest
	}
	n, err := strconv.ParseInt(integer, 10, 64)
	if err != nil {
		return 0, false, false
	}
	switch {
	case n < 1e11:
		micros := 0
		for i := range 6 {
			micros *= 10
			if i < len(fraction) {
				if fraction[i] < '0' || fraction[i] > '9' {
					return 0, false, false
				}
				micros += int(fraction[i] - '0')
			}
		}
		n, whole = n*1_000_000+int64(micros), fraction == ""
	case n < 1e14:
		n *= 1000
	case n >= 1e17:
		n /= 1000
	}
	return n, whole, n >= earliest && n < latest
}

// timeOfDay reads 13:55:36 and returns seconds. A leap second is the next one.
func timeOfDay(s string) (int, bool) {
	if s[2] != ':' || s[5] != ':' {
		return 0, false
	}
	h, ok := digits(s[:2])
	m, ok2 := digits(s[3:5])
	sec, ok3 := digits(s[6:8])
	return h*3600 + m*60 + sec, ok && ok2 && ok3 && h < 24 && m < 60 && sec <= 60
}

// zone reads -0700 or -07:00 and returns seconds.
func zone(s string) (int, bool) {
	if len(s) == 6 && s[3] == ':' {
		s = s[:3] + s[4:]
	}
	if len(s) != 5 || s[0] != '-' && s[0] != '+' {
		return 0, false
	}
	h, ok := digits(s[1:3])
	m, ok2 := digits(s[3:5])
	n := h*3600 + m*60
	if s[0] == '-' {
		n = -n
	}
	return n, ok && ok2 && h < 24 && m < 60
}

func digits(s string) (n int, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// moment returns the microseconds since the Unix epoch.
func moment(year, month, day, seconds, micros int) (int64, bool) {
	if month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day {
		return 0, false // such as the 31st of April
	}
	at := (t.Unix()+int64(seconds))*1_000_000 + int64(micros)
	return at, at >= earliest && at < latest
}

// durationOf reads a number of units, or a text such as 1.5ms.
func durationOf(s string, unit time.Duration) int64 {
	f, err := strconv.ParseFloat(s, 64)
	f *= unit.Seconds()
	if err != nil {
		d, err := time.ParseDuration(s)
		if err != nil {
			return Unknown
		}
		f = d.Seconds()
	}
	if !(f >= 0 && f < 1e9) {
		return Unknown
	}
	return int64(math.Round(f * 1e6))
}
