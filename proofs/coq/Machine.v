(* The explicit two-level memory on which the lower bounds are stated.

   Fast memory holds at most M words; the schedule moves every word itself.
   A model says which words and tasks there are:
     input w      w starts in slow memory and is never made anew;
     needs t      the words that must be in fast memory when task t is done;
     outs t       the words that absorb its result;
     ready t c    what t asks of the contents c of the fast words.
   The content of a word is the list of the tasks it has absorbed.  There is a
   fast copy and a saved copy of it.  Recomputation, spilling, reloading, merging
   of partial results and dropping are all allowed; nothing is assumed about the
   order.  Loading a word merges its saved content into the fast copy (a merge
   is more than real hardware offers, and a bound that holds with it holds
   without).  Load, Store and Add cost one word each; the rest is free. *)
From Coq Require Import Arith Lia List Permutation.
Import ListNotations.

Record model := {
  word : Type;
  task : Type;
  word_dec : forall x y : word, {x = y} + {x <> y};
  input : word -> bool;
  needs : task -> list word;
  outs : task -> list word;
  ready : task -> (word -> list task) -> Prop
}.
Arguments input {_}. Arguments needs {_}. Arguments outs {_}. Arguments ready {_}.

Inductive event (X : model) :=
| Load (w : word X)     (* slow -> fast; merges what was saved *)
| New (w : word X)      (* an empty word in fast memory, not an input *)
| Store (w : word X)    (* fast -> slow; replaces what was saved *)
| Add (w : word X)      (* fast -> slow; joins what was saved (a reduction) *)
| Drop (w : word X)     (* room given up, the fast content is lost *)
| Do (t : task X).
Arguments Load {_}. Arguments New {_}. Arguments Store {_}.
Arguments Add {_}. Arguments Drop {_}. Arguments Do {_}.

Section Machine.
Context {X : model}.
Notation word := (word X).
Notation task := (task X).
Notation event := (event X).

Record state := { fast : list word; content : word -> list task; saved : word -> list task }.
Definition init : state := {| fast := []; content := fun _ => []; saved := fun _ => [] |}.

Definition upd {A} (f : word -> A) (w : word) (a : A) : word -> A :=
  fun x => if word_dec X w x then a else f x.

Definition enter (w : word) (ws : list word) : list word :=
  if in_dec (word_dec X) w ws then ws else w :: ws.

Definition absorb (t : task) (c : word -> list task) : word -> list task :=
  fun w => if in_dec (word_dec X) w (outs t) then t :: c w else c w.

Definition allowed (s : state) (e : event) : Prop :=
  match e with
  | Load _ | Drop _ => True
  | New w => ~ In w (fast s) /\ input w = false
  | Store w | Add w => In w (fast s)
  | Do t => incl (needs t) (fast s) /\ ready t (content s)
  end.

Definition step (s : state) (e : event) : state :=
  let (f, c, m) := s in
  match e with
  | Load w => {| fast := enter w f; content := upd c w (c w ++ m w); saved := m |}
  | New w => {| fast := w :: f; content := upd c w []; saved := m |}
  | Store w => {| fast := f; content := c; saved := upd m w (c w) |}
  | Add w => {| fast := f; content := c; saved := upd m w (c w ++ m w) |}
  | Drop w => {| fast := remove (word_dec X) w f; content := upd c w []; saved := m |}
  | Do t => {| fast := f; content := absorb t c; saved := m |}
  end.

Fixpoint run (s : state) (es : list event) : state :=
  match es with [] => s | e :: es => run (step s e) es end.

(* Every event is allowed when it happens, and M words are never exceeded. *)
Fixpoint valid (M : nat) (s : state) (es : list event) : Prop :=
  match es with
  | [] => True
  | e :: es => allowed s e /\ length (fast (step s e)) <= M /\ valid M (step s e) es
  end.

Definition cost_load (e : event) : nat := match e with Load _ => 1 | _ => 0 end.
Definition cost_store (e : event) : nat := match e with Store _ | Add _ => 1 | _ => 0 end.
Fixpoint total (cost : event -> nat) (es : list event) : nat :=
  match es with [] => 0 | e :: es => cost e + total cost es end.
Definition loads := total cost_load.
Definition stores := total cost_store.
Definition traffic := total (fun e => cost_load e + cost_store e).

(* General facts *)

Lemma upd_same {A} f w (a : A) : upd f w a w = a.
Proof. unfold upd. destruct (word_dec X w w); congruence. Qed.

Lemma upd_other {A} f w (a : A) x : w <> x -> upd f w a x = f x.
Proof. intros H. unfold upd. destruct (word_dec X w x); congruence. Qed.

Lemma enter_In w ws x : In x (enter w ws) <-> w = x \/ In x ws.
Proof.
  unfold enter. destruct (in_dec (word_dec X) w ws); cbn; [ | tauto ].
  split; [ auto | intros [<- | H]; auto ].
Qed.

Lemma run_app s a b : run s (a ++ b) = run (run s a) b.
Proof. revert s. induction a; cbn; auto. Qed.

Lemma valid_app M s a b : valid M s (a ++ b) <-> valid M s a /\ valid M (run s a) b.
Proof. revert s. induction a; cbn; intros; [ tauto | rewrite IHa; tauto ]. Qed.

Lemma total_app cost a b : total cost (a ++ b) = total cost a + total cost b.
Proof. induction a; cbn; lia. Qed.

Lemma total_map {A} cost (f : A -> event) c l :
  (forall a, cost (f a) = c) -> total cost (map f l) = length l * c.
Proof. intros H. induction l; cbn; rewrite ?H; lia. Qed.

Lemma traffic_loads_stores es : traffic es = loads es + stores es.
Proof. unfold traffic, loads, stores. induction es; cbn; lia. Qed.

(* Whatever a word has absorbed was done, and what was done was ready. *)
Lemma content_done es : forall s w t,
  In t (content (run s es) w) \/ In t (saved (run s es) w) ->
  In (Do t) es \/ exists w', In t (content s w') \/ In t (saved s w').
Proof.
  induction es as [| e es IH]; intros s w t H; [ right; now exists w | ].
  destruct (IH _ _ _ H) as [H' | (w' & H')]; [ left; now right | clear IH H ].
  assert (E : forall (f : word -> list task) u a, In t (upd f u a w') -> In t a \/ In t (f w')).
  { intros f u a. unfold upd. destruct (word_dec X u w'); auto. }
  destruct s as [f c m], e as [u | u | u | u | u | t']; cbn in H'.
  1-5: destruct H' as [H' | H']; try apply E in H'; rewrite ?in_app_iff in H';
    cbn; firstorder eauto.
  destruct H' as [H' | H']; [ | cbn; eauto ].
  unfold absorb in H'. destruct (in_dec (word_dec X) w' (outs t')); [ | cbn; eauto ].
  destruct H' as [<- | H']; cbn; eauto.
Qed.

Lemma done_ready M t es : forall s,
  valid M s es -> In (Do t) es ->
  exists c, ready t c /\ forall w t', In t' (c w) ->
    In (Do t') es \/ exists w', In t' (content s w') \/ In t' (saved s w').
Proof.
  induction es as [| e es IH]; intros s V H; [ contradiction | ].
  destruct V as (He & _ & V), H as [-> | H].
  - exists (content s). split; [ apply He | eauto ].
  - destruct (IH _ V H) as (c & Hr & Hc). exists c. split; [ exact Hr | ].
    intros w t' Ht. destruct (Hc w t' Ht) as [? | (w' & Hw)]; [ left; now right | ].
    destruct (content_done [e] s w' t' Hw) as [[-> | []] | ?]; [ left; now left | now right ].
Qed.
End Machine.
Arguments state : clear implicits.
Arguments init : clear implicits.
