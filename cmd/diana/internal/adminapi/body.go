// SPDX-License-Identifier: MIT

package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// MostBody is the size of the largest body that a route reads, in bytes.
const MostBody = 2 << 20

// Read reads the JSON object in the body of a request into the struct that body points to. It accepts the keys of
// that struct alone, each once and in its letter case, in UTF-8. Package encoding/json is not that strict, so an
// operator could change another thing than intended. expected describes the object. If the body is not valid, or has
// over most bytes, Read answers and returns false.
func Read(w http.ResponseWriter, r *http.Request, expected string, most int64, body any) bool {
	if r.ContentLength > most {
		Problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("expected a body of at most %d bytes", most))
		return false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		Problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("expected a body of at most %d bytes", large.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		Problem(w, http.StatusRequestTimeout, "The body did not arrive in time.")
	case err != nil: // its text can have addresses
		Problem(w, http.StatusBadRequest, "The body is not complete.")
	default:
		if err = decode(text, body); err != nil {
			Problem(w, http.StatusBadRequest, fmt.Sprintf("expected %s: %v", expected, err))
		}
	}
	return err == nil
}

// decode decodes a text into a struct.
func decode(text []byte, body any) error {
	if !utf8.Valid(text) {
		return errors.New("found bytes that are not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var wrong *json.UnmarshalTypeError
	switch err := decoder.Decode(body); {
	case errors.As(err, &wrong) && wrong.Field != "": // its text names Go types
		return fmt.Errorf("found %s for %q", wrong.Value, wrong.Field)
	case errors.As(err, &wrong):
		return fmt.Errorf("found %s", wrong.Value)
	case errors.Is(err, io.EOF):
		return errors.New("found nothing")
	case err != nil:
		return fmt.Errorf("found another text: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("found more after it")
	}
	return checkKeys(text, keysOf(reflect.TypeOf(body).Elem()))
}

// checkKeys returns an error if an object has a key twice, or in other letters. The object is valid JSON.
func checkKeys(text []byte, keys []string) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if mark, _ := decoder.Token(); mark != json.Delim('{') {
		return errors.New("found null")
	}
	var seen []string
	for decoder.More() {
		token, _ := decoder.Token()
		key, _ := token.(string)
		if !slices.Contains(keys, key) {
			return fmt.Errorf("found %q", key)
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("found %q twice", key)
		}
		seen = append(seen, key)
		var value json.RawMessage
		_ = decoder.Decode(&value)
	}
	return nil
}

// keysOf returns the JSON keys of a struct.
func keysOf(of reflect.Type) (keys []string) {
	for i := range of.NumField() {
		if f := of.Field(i); f.Anonymous {
			keys = append(keys, keysOf(f.Type)...)
		} else {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			keys = append(keys, name)
		}
	}
	return keys
}
