(* The backward pass on the explicit memory of Machine.v, one head, word by word.

   Query side: q_i and do_i (the gradient of the output) are inputs, dq_i is
   accumulated.  Key side: k_j and v_j are inputs, dk_j and dv_j are accumulated.
   A task is a pair (i, j): it needs all of these words at one moment (the pass is
   fused) and adds to dq_i, dk_j and dv_j.  Scores, statistics and anything else are
   words Bx, which no task needs: they are taken to be free. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine.
Import ListNotations.

Inductive bword :=
| Bq (i c : nat) | Bo (i c : nat) | Bdq (i c : nat)
| Bk (j c : nat) | Bv (j c : nat) | Bdk (j c : nat) | Bdv (j c : nat)
| Bx (made : bool) (n : nat).

Definition bword_dec (x y : bword) : {x = y} + {x <> y}.
Proof. decide equality; first [ apply Nat.eq_dec | apply Bool.bool_dec ]. Defined.

Definition b_input (w : bword) : bool :=
  match w with
  | Bq _ _ | Bo _ _ | Bk _ _ | Bv _ _ => true
  | Bdq _ _ | Bdk _ _ | Bdv _ _ => false
  | Bx made _ => negb made
  end.

Definition words (f : nat -> bword) (n : nat) : list bword := map f (seq 0 n).

Section Backward.
Variables d dv : nat.

Definition q_in i := words (Bq i) d ++ words (Bo i) dv.
Definition q_acc i := words (Bdq i) d.
Definition k_in j := words (Bk j) d ++ words (Bv j) dv.
Definition k_acc j := words (Bdk j) d ++ words (Bdv j) dv.

Definition backward : model := {|
  word := bword;
  task := nat * nat;
  word_dec := bword_dec;
  input := b_input;
  needs t := (q_in (fst t) ++ q_acc (fst t)) ++ k_in (snd t) ++ k_acc (snd t);
  outs t := q_acc (fst t) ++ k_acc (snd t);
  ready _ _ := True
|}.

(* Every visible pair is in the saved dq_i, dk_j and dv_j. *)
Definition b_complete (vis : list (nat * nat)) (s : state backward) : Prop :=
  forall t w, In t vis -> In w (q_acc (fst t) ++ k_acc (snd t)) -> In t (saved s w).
End Backward.

Lemma in_words_iff f n w : In w (words f n) <-> exists c, c < n /\ f c = w.
Proof.
  unfold words. rewrite in_map_iff. split; intros (c & H1 & H2); exists c;
    [ rewrite in_seq in H2 | rewrite in_seq ]; split; trivial; lia.
Qed.

Lemma words_length f n : length (words f n) = n.
Proof. unfold words. now rewrite map_length, seq_length. Qed.

Lemma words_NoDup f n : (forall x y, f x = f y -> x = y) -> NoDup (words f n).
Proof. intros H. apply NoDup_map; [ exact H | apply seq_NoDup ]. Qed.

(* Which word is it, when it is in one of the lists? *)
Ltac in_b := repeat match goal with
  | H : In _ (_ ++ _) |- _ => apply in_app_iff in H; destruct H
  | H : In _ (words _ _) |- _ =>
      let E := fresh "E" in apply in_words_iff in H as (? & ? & E); first [ discriminate E | subst ]
  end.

Definition b_query_side (w : bword) : bool :=
  match w with Bq _ _ | Bo _ _ | Bdq _ _ => true | _ => false end.
Definition b_row (w : bword) : nat :=
  match w with
  | Bq i _ | Bo i _ | Bdq i _ | Bk i _ | Bv i _ | Bdk i _ | Bdv i _ => i
  | Bx _ n => n
  end.
Definition b_owner (xy : bword * bword) : nat * nat := (b_row (fst xy), b_row (snd xy)).

Lemma side_NoDup (f g : nat -> bword) n m :
  (forall x y, f x = f y -> x = y) -> (forall x y, g x = g y -> x = y) ->
  (forall x y, f x <> g y) -> NoDup (words f n ++ words g m).
Proof.
  intros Hf Hg H. apply NoDup_app; try (now apply words_NoDup).
  intros w Hw Hw'. apply in_words_iff in Hw as (x & _ & <-), Hw' as (y & _ & E).
  now apply (H x y).
Qed.

Lemma q_in_NoDup d dv i : NoDup (q_in d dv i).
Proof. apply side_NoDup; congruence. Qed.
Lemma q_acc_NoDup d i : NoDup (q_acc d i).
Proof. apply words_NoDup. congruence. Qed.
Lemma k_in_NoDup d dv j : NoDup (k_in d dv j).
Proof. apply side_NoDup; congruence. Qed.
Lemma k_acc_NoDup d dv j : NoDup (k_acc d dv j).
Proof. apply side_NoDup; congruence. Qed.

Lemma in_q_in d dv w i : In w (q_in d dv i) ->
  b_input w = true /\ b_query_side w = true /\ b_row w = i.
Proof. unfold q_in. intros H. in_b; auto. Qed.
Lemma in_q_acc d w i : In w (q_acc d i) ->
  b_input w = false /\ b_query_side w = true /\ b_row w = i.
Proof. unfold q_acc. intros H. in_b; auto. Qed.
Lemma in_k_in d dv w j : In w (k_in d dv j) ->
  b_input w = true /\ b_query_side w = false /\ b_row w = j.
Proof. unfold k_in. intros H. in_b; auto. Qed.
Lemma in_k_acc d dv w j : In w (k_acc d dv j) ->
  b_input w = false /\ b_query_side w = false /\ b_row w = j.
Proof. unfold k_acc. intros H. in_b; auto. Qed.

Lemma q_NoDup d dv i : NoDup (q_in d dv i ++ q_acc d i).
Proof.
  apply NoDup_app; [ apply q_in_NoDup | apply q_acc_NoDup | ].
  intros w Hw Hw'. apply in_q_in in Hw. apply in_q_acc in Hw'. intuition congruence.
Qed.
Lemma k_NoDup d dv j : NoDup (k_in d dv j ++ k_acc d dv j).
Proof.
  apply NoDup_app; [ apply k_in_NoDup | apply k_acc_NoDup | ].
  intros w Hw Hw'. apply in_k_in in Hw. apply in_k_acc in Hw'. intuition congruence.
Qed.
