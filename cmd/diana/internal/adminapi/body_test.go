// SPDX-License-Identifier: MIT

package adminapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

type by struct {
	By string `json:"by"`
}

type body struct {
	Rule  string `json:"rule"`
	Actor Texts  `json:"actor,omitempty"`
	by
}

// A body is read strictly, and every mistake is a problem that says what was expected.
func TestRead(t *testing.T) {
	t.Parallel()
	const most = 100
	for _, row := range []struct {
		text   string
		status int
		want   string
	}{
		{`{"rule": "a", "actor": "ann", "by": "op"}`, 0, ""},
		{`{"actor": ["ann", "ip=192.0.2.1"], "rule": "a"}`, 0, ""},
		{`{}`, 0, ""},
		{``, 400, "found nothing"},
		{`null`, 400, "found null"},
		{`[]`, 400, "found array"},
		{`"x"`, 400, "found string"},
		{`{"rule": 7}`, 400, `found number for "rule"`},
		{`{"rule": "a"`, 400, "found another text"},
		{`{"rule": "a"} {}`, 400, "found more after it"},
		{`{"rule": "a"}]`, 400, "found more after it"},
		{`{"rule": "a", "rule": "b"}`, 400, `found "rule" twice`},
		{`{"RULE": "a"}`, 400, `found "RULE"`},
		{`{"rule": "a", "By": "b"}`, 400, `found "By"`},
		{`{"by": {"by": "a"}}`, 400, "found object"},
		{`{"unit": "a"}`, 400, `unknown field`},
		{"{\"rule\": \"\xff\"}", 400, "not UTF-8"},
		{`{"rule": "` + strings.Repeat("x", most) + `"}`, 413, "expected a body of at most 100 bytes"},
	} {
		for _, length := range []int64{int64(len(row.text)), -1} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(row.text))
			r.ContentLength = length
			var b body
			ok := Read(w, r, `{"rule": "NAME"}`, most, &b)
			var problem struct{ Detail string }
			if ok != (row.status == 0) || !ok && (w.Code != row.status || json.Unmarshal(w.Body.Bytes(), &problem) != nil ||
				!strings.Contains(problem.Detail, row.want) || !strings.HasPrefix(problem.Detail, "expected ")) {
				t.Errorf("%s: %v, %d %s; want %d %s", row.text, ok, w.Code, w.Body, row.status, row.want)
			}
		}
	}
	for err, want := range map[error]int{os.ErrDeadlineExceeded: http.StatusRequestTimeout, io.ErrUnexpectedEOF: http.StatusBadRequest} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(err)))
		if Read(w, r, "{}", most, new(body)) || w.Code != want || strings.Contains(w.Body.String(), err.Error()) {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
}
